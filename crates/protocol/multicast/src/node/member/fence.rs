//! Who may write this member's stream rings: the leader of the ballot alone.

use stentor_fabric::{Access, Fabric, ProcessId, RegionId};

use super::Member;

/// Revocations that have not taken effect.
#[derive(Debug, Default)]
pub(super) struct Fence {
    pending: Vec<RegionId>,
}

impl Fence {
    pub(super) fn revoked(&mut self, region: RegionId) {
        self.pending.retain(|pending| *pending != region);
    }
}

impl<F: Fabric> Member<F> {
    /// Takes the access to the stream rings here away from all members but one. Call it again until it says that this has
    /// taken effect: then what they wrote is here, and nothing comes after it.
    #[doc(hidden)]
    pub fn fence(&mut self, except: Option<ProcessId>) -> bool {
        let mut all = true;
        for process in self.topology.members(self.group).filter(|process| Some(*process) != except) {
            let Some(Some(stream)) = self.streams.get_mut(process.index()) else { continue };
            if stream.granted {
                stream.granted = self.fabric.revoke(stream.ring.region, process).is_err();
                if !stream.granted {
                    self.recovery.fence.pending.push(stream.ring.region);
                }
            }
            all &= !stream.granted;
        }
        all && self.recovery.fence.pending.is_empty()
    }

    /// Lets a member write its stream here.
    #[doc(hidden)]
    pub fn grant_stream(&mut self, to: ProcessId) {
        let Some(Some(stream)) = self.streams.get_mut(to.index()) else { return };
        // A revocation that is under way would take the new access away, too.
        let pending = self.recovery.fence.pending.contains(&stream.ring.region);
        if !stream.granted && !pending && self.fabric.grant(stream.ring.region, to, Access::Write).is_ok() {
            stream.granted = true;
        }
    }
}
