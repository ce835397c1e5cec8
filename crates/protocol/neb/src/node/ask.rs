//! The state of reading one host's registers.

/// Progress of a request to a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Stage {
    /// No request is in progress.
    #[default]
    Idle,
    /// Registers are to be read.
    Registers,
    /// READs of registers are in flight.
    RegistersFlying,
    /// The registers have arrived.
    RegistersHere,
    /// Floors are to be read, because a register was torn.
    Floors,
    /// READs of floors are in flight.
    FloorsFlying,
    /// The floors have arrived. They were read after the registers.
    FloorsHere,
}

/// A request to a host for its registers of the indices of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Ask {
    pub(super) serial: u64,
    pub(super) stage: Stage,
    pub(super) tries: u32,
}

impl Ask {
    /// Records that the READs of this round are complete.
    pub(super) fn arrived(&mut self, serial: u64) {
        if serial == self.serial {
            self.stage = match self.stage {
                Stage::RegistersFlying => Stage::RegistersHere,
                Stage::FloorsFlying => Stage::FloorsHere,
                other => other,
            };
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.stage == Stage::Idle
    }

    pub(super) fn is_flying(&self) -> bool {
        matches!(self.stage, Stage::RegistersFlying | Stage::FloorsFlying)
    }
}
