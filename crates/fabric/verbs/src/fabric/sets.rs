//! Sets on a device: their lives are the bootstrap's, and so is what is to be posted.

use stentor_bootstrap::{RawWrite, SetEnds, longest_list};
use stentor_fabric::memory::{Ordering, WORD};
use stentor_fabric::{Completion, ConnectError, Opcode, ProcessId, QpConfig, QpId, SetSpec};

use super::VerbsFabric;
use super::net::Net;
use super::outstanding::{Entry, Name};
use crate::device::{Gid, GidKind};
use crate::qp::{Data, Local, Remote, TransitionError, Work};
use crate::{MakeError, Region};

/// Of what is posted to a set so many bytes may wait for its member list to change, besides one write of the longest.
const HELD: usize = 64 << 10;
/// Places of a set's send queue beside those that are asked for.
pub(super) const SPARE: u32 = 2;

/// What an end of a set has beside what all ends have.
#[derive(Debug)]
pub(super) struct SetEnd {
    /// Where a member list is sent from that is longer than inline data may be. One is on its way at a time.
    list: Option<Region>,
}

/// Whether a switch can copy what has this address: its packets must be those of IPv4.
pub(super) fn is_copied(gid: &Gid) -> bool {
    gid.kind == GidKind::RoceV2 && gid.bytes.to_ipv4_mapped().is_some()
}

/// Why a life of a set's end cannot be connected, in words that are the same for the next one.
pub(super) fn unmet(error: &TransitionError) -> String {
    let TransitionError { device, errno, attribute, remedy, .. } = error;
    let said = errno.map_or(String::new(), |errno| format!(" ({errno})"));
    let blamed = attribute.as_ref().map_or(String::new(), |(name, value)| format!(", because of {name} = {value}"));
    format!("{device} does not connect a queue pair to it{said}{blamed}; {remedy}")
}

impl Net {
    fn make_set_end(&mut self, qp: QpId, sender: ProcessId, config: QpConfig, members: usize) -> Result<(), MakeError> {
        let longest = longest_list(members);
        let sends = sender == self.config.me;
        let list = if sends && longest > self.inline_bytes as usize {
            Some(Region::register(&self.domain(sender)?, longest.next_multiple_of(WORD), None)?)
        } else {
            None
        };
        self.make(qp, sender, config)?;
        self.halves[qp.index()].set = Some(SetEnd { list });
        Ok(())
    }
}

impl SetEnds for Net {
    #[inline]
    fn write(&mut self, qp: QpId, write: &RawWrite<'_>) -> Result<(), String> {
        let RawWrite { id, data, va, rkey, signalled } = *write;
        let half = &mut self.halves[qp.index()];
        let name = Name { receive: false, qp, life: half.life, sequence: half.sends.next() };
        let Some(pair) = &half.pair else { return Err("it is broken".to_owned()) };
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
        half.sends.push(Entry { id, opcode: Opcode::Write });
        Ok(())
    }
}

impl VerbsFabric {
    /// The next thing about the switch that a person should know: that it can be used, or why not. Told once.
    pub fn next_switch_note(&mut self) -> Option<String> {
        self.bootstrap.next_switch_note()
    }

    pub(super) fn make_set(&mut self, spec: SetSpec<'_>, config: QpConfig) -> Result<QpId, ConnectError> {
        self.check_depths(config)?;
        let held = HELD + self.capabilities.inline_bytes as usize;
        let members = spec.members.len();
        self.bootstrap.join_set(&mut self.net, (spec, config), held, |net, qp, sender, config| {
            super::check_room(qp, sender)?;
            let made = net.make_set_end(qp, sender, config, members);
            made.map_err(|error| ConnectError::System { peer: sender, reason: error.to_string() })
        })
    }

    /// Completions, where some may be of sets.
    pub(super) fn poll_with_sets(&mut self, out: &mut [Completion]) -> usize {
        let mut count = 0;
        while count < out.len() {
            let taken = self.net.poll(&mut out[count..]);
            if taken == 0 {
                let Some(flushed) = self.bootstrap.next_flushed() else { break };
                out[count] = flushed;
                count += 1;
            }
            // What sets keep for themselves leaves a place for what is behind it.
            let begin = count;
            for place in begin..begin + taken {
                let done = out[place];
                let told = match self.bootstrap.is_set(done.qp) {
                    true => self.bootstrap.set_completed(&mut self.net, &done),
                    false => Some(done),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Errno;
    use crate::qp::State;

    #[test]
    fn only_packets_of_ipv4_are_copied() {
        let gid = |bytes: &str, kind| Gid { index: 0, bytes: bytes.parse().unwrap(), kind, interface: None };
        assert!(is_copied(&gid("::ffff:10.0.0.1", GidKind::RoceV2)));
        assert!(!is_copied(&gid("::ffff:10.0.0.1", GidKind::RoceV1)));
        assert!(!is_copied(&gid("fd00::1", GidKind::RoceV2)));
        assert!(!is_copied(&gid("fe80::1", GidKind::Ib)));
    }

    #[test]
    fn what_hinders_one_life_is_said_alike_of_the_next() {
        let error = |qp_number| TransitionError {
            device: "rxe0".into(),
            qp_number,
            from: State::Init,
            to: State::Rtr,
            errno: Some(Errno(libc::ENETUNREACH)),
            attribute: Some(("ah_attr.grh.dgid", "10.0.9.1".into())),
            remedy: "a route?".into(),
        };
        assert_eq!(unmet(&error(17)), unmet(&error(18)));
        let text = unmet(&error(17));
        assert!(["rxe0", "unreachable", "10.0.9.1", "a route?"].iter().all(|part| text.contains(part)), "{text}");
    }
}
