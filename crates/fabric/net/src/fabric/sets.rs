//! Fan-out sets: this process's end is a queue pair of the device, which [`Sets`] drives.

use stentor_fabric::{Completion, ConnectError, QpConfig, QpId, SetSpec};

use super::{Device, NetFabric};
use crate::Sets;

/// Maximum number of posted bytes that may wait while the member list of a set changes, not counting one write of
/// maximum length.
const HELD: usize = 64 << 10;

impl<D: Device> NetFabric<D> {
    pub(super) fn make_set(&mut self, spec: SetSpec<'_>, config: QpConfig) -> Result<QpId, ConnectError> {
        self.check_depths(config)?;
        let held = HELD + self.capabilities.inline_bytes as usize;
        let members = spec.members.len();
        D::Sets::join(&mut self.cm, &mut self.device, (spec, config), held, |device, qp, sender, config| {
            let made = device.make_set(qp, sender, config, members);
            made.map_err(|reason| ConnectError::System { peer: sender, reason })
        })
    }

    /// Polls completions, some of which may belong to sets.
    pub(super) fn poll_with_sets(&mut self, out: &mut [Completion]) -> usize {
        let mut count = 0;
        while count < out.len() {
            let taken = self.device.poll(&mut out[count..]);
            if taken == 0 {
                let Some(flushed) = D::Sets::next_flushed(&mut self.cm) else { break };
                out[count] = flushed;
                count += 1;
            }
            // Completions that a set consumes are not reported. Later completions close the gaps in `out`.
            let begin = count;
            for place in begin..begin + taken {
                let done = out[place];
                let told = if self.cm.set_of(done.qp).is_some() {
                    D::Sets::completed(&mut self.cm, &mut self.device, &done)
                } else {
                    Some(done)
                };
                if let Some(told) = told {
                    out[count] = told;
                    count += 1;
                }
            }
        }
        count
    }
}
