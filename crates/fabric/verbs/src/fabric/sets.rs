//! Fan-out sets on a device. The connection manager controls their lives, and
//! [`SwitchSets`](stentor_switch_host::SwitchSets) decides what is posted.

use stentor_fabric::memory::{Ordering, WORD};
use stentor_fabric::{Opcode, ProcessId, QpConfig, QpId};
use stentor_fabric_net::End;
use stentor_switch_host::{RawWrite, SetTransport, longest_list};

use super::VerbsDevice;
use super::outstanding::{Name, Posted};
use crate::device::{Gid, GidKind};
use crate::qp::{Data, Local, Remote, TransitionError, Work};
use crate::{MakeError, Region};

/// RNR retry count that means no limit.
const FOR_EVER: u8 = 7;

/// Number of slots of a set's send queue in addition to the requested ones.
pub(super) const SPARE: u32 = 2;

/// State of a set's end in addition to that of every end.
#[derive(Debug)]
pub(super) struct SetEnd {
    /// Source memory for member lists, if a list can be longer than the limit of inline data. Only one list is
    /// outstanding at a time.
    list: Option<Region>,
}

/// Returns whether a switch can copy packets that are sent from this GID: it copies only RoCE v2 packets over IPv4.
pub(super) fn is_copied(gid: &Gid) -> bool {
    gid.kind == GidKind::RoceV2 && gid.bytes.to_ipv4_mapped().is_some()
}

/// Returns the reason why a life of a set's end cannot be connected, without details that differ between lives.
pub(super) fn unmet(error: &TransitionError) -> String {
    let TransitionError { device, errno, attribute, remedy, .. } = error;
    let said = errno.map_or(String::new(), |errno| format!(" ({errno})"));
    let blamed = attribute.as_ref().map_or(String::new(), |(name, value)| format!(", because of {name} = {value}"));
    format!("{device} cannot connect a queue pair to the switch{said}{blamed}; {remedy}")
}

impl VerbsDevice {
    pub(super) fn make_set_end(
        &mut self,
        qp: QpId,
        sender: ProcessId,
        config: QpConfig,
        members: usize,
    ) -> Result<(), MakeError> {
        let longest = longest_list(members);
        let sends = sender == self.me;
        let list = if sends && longest > self.inline_bytes as usize {
            Some(Region::register(&self.domain(sender)?, longest.next_multiple_of(WORD), None)?)
        } else {
            None
        };
        self.make_end(qp, sender, config)?;
        self.halves[qp.index()].set = Some(SetEnd { list });
        Ok(())
    }
}

impl SetTransport for VerbsDevice {
    fn ready_at_switch(&mut self, qp: QpId, ours: &End, theirs: &End) -> Result<(), String> {
        self.begin_to_send(qp, (ours, theirs), FOR_EVER)
    }

    #[inline]
    fn write(&mut self, qp: QpId, write: &RawWrite<'_>) -> Result<(), String> {
        let RawWrite { id, data, va, rkey, signalled } = *write;
        let half = &mut self.halves[qp.index()];
        let name = Name { receive: false, qp, life: half.life, sequence: half.sends.next() };
        let Some(pair) = &half.pair else { return Err("the queue pair is broken".to_owned()) };
        let list = half.set.as_ref().and_then(|set| set.list.as_ref());
        let data = match list.filter(|_| data.len() > self.inline_bytes as usize) {
            Some(region) => {
                for (word, bytes) in region.words().iter().zip(data.as_chunks::<WORD>().0) {
                    word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
                }
                Data::Region(Local { region, offset: 0, bytes: data.len() as u32 })
            }
            None => Data::Inline(data),
        };
        let work = Work::Write { data, remote: Remote { address: va, key: rkey }, imm: None };
        if let Err(error) = pair.post(name.encode(), &work, signalled) {
            let _ = self.not_posted(qp, &error);
            return Err(error.to_string());
        }
        half.sends.push(Posted::new(id, Opcode::Write, signalled, 0));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Errno;
    use crate::qp::State;

    #[test]
    fn only_ipv4_packets_are_copied() {
        let gid = |bytes: &str, kind| Gid { index: 0, bytes: bytes.parse().unwrap(), kind, interface: None };
        assert!(is_copied(&gid("::ffff:10.0.0.1", GidKind::RoceV2)));
        assert!(!is_copied(&gid("::ffff:10.0.0.1", GidKind::RoceV1)));
        assert!(!is_copied(&gid("fd00::1", GidKind::RoceV2)));
        assert!(!is_copied(&gid("fe80::1", GidKind::Ib)));
    }

    #[test]
    fn reason_is_the_same_for_every_life() {
        let error = |qp_number| TransitionError {
            device: "rxe0".into(),
            qp_number,
            from: State::Init,
            to: State::Rtr,
            errno: Some(Errno(libc::ENETUNREACH)),
            attribute: Some(("ah_attr.grh.dgid", "10.0.9.1".into())),
            remedy: "check the route".into(),
        };
        assert_eq!(unmet(&error(17)), unmet(&error(18)));
        let text = unmet(&error(17));
        assert!(
            ["rxe0", "unreachable", "10.0.9.1", "check the route"].iter().all(|part| text.contains(part)),
            "{text}"
        );
    }
}
