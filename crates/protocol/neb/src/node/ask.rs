//! A question to a host, and how far it is.

/// How far a question to a host is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Stage {
    /// Nothing was asked.
    #[default]
    Idle,
    /// Registers are to be read.
    Registers,
    /// They are on their way.
    RegistersFlying,
    /// They are here.
    RegistersHere,
    /// Floors are to be read: some register was torn.
    Floors,
    /// They are on their way.
    FloorsFlying,
    /// They are here, read after the registers.
    FloorsHere,
}

/// A question to a host: its registers for the indices of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Ask {
    pub(super) serial: u64,
    pub(super) stage: Stage,
    pub(super) tries: u32,
}

impl Ask {
    /// The READs of this round are complete.
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
