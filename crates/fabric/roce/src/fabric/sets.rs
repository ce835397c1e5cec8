//! Sets on the endpoint: their lives are the bootstrap's, and so is what is to be posted.

use stentor_bootstrap::{RawWrite, SetEnds};
use stentor_fabric::{Completion, ConnectError, QpConfig, QpId, SetSpec};

use super::RoceFabric;
use super::net::{Net, fresh_number};
use super::regions::domain;
use crate::endpoint::{Data, Remote, Request, Work};

/// Of what is posted to a set so many bytes may wait for its member list to change, besides one write of the longest.
const HELD: usize = 64 << 10;

impl SetEnds for Net {
    #[inline]
    fn write(&mut self, qp: QpId, write: &RawWrite<'_>) -> Result<(), String> {
        let RawWrite { id, data, va, rkey, signalled } = *write;
        let request = Request::Write { data: Data::Inline(data), remote: Remote { va, rkey }, imm: None };
        let work = Work { id, request, signalled, solicited: false };
        self.endpoint.post_send(qp, &work).map_err(|error| error.to_string())
    }
}

impl RoceFabric {
    pub(super) fn make_set(&mut self, spec: SetSpec<'_>, config: QpConfig) -> Result<QpId, ConnectError> {
        super::connect::check_depths(config)?;
        let held = HELD + self.capabilities.inline_bytes as usize;
        self.bootstrap.join_set(&mut self.net, (spec, config), held, |net, qp, sender, config| {
            let made = std::iter::repeat_with(|| net.endpoint.create(fresh_number(), domain(sender), config));
            let reason = "no free queue pair number".to_owned();
            let made = made.take(1000).flatten().next().ok_or(ConnectError::System { peer: sender, reason })?;
            debug_assert_eq!(made, qp);
            Ok(())
        })
    }

    /// Completions, where some may be of sets.
    pub(super) fn poll_with_sets(&mut self, out: &mut [Completion]) -> usize {
        let mut count = 0;
        while count < out.len() {
            let completion = match self.net.endpoint.poll() {
                Some(done) if self.bootstrap.is_set(done.qp) => self.bootstrap.set_completed(&mut self.net, &done),
                Some(done) => Some(done),
                None => match self.bootstrap.next_flushed() {
                    Some(flushed) => Some(flushed),
                    None => break,
                },
            };
            if let Some(completion) = completion {
                out[count] = completion;
                count += 1;
            }
        }
        count
    }
}
