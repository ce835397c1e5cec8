//! Warnings about clocks that disagree: the wall clock of this host, the time of the group that this member leads, and
//! the times of other groups.
//!
//! A problem is reported when it has lasted for [`LASTS`], again every [`AGAIN`], and once more when it has ended.

use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_multicast::PhysicalClock;

use super::ClusterRuntime;

/// Time that a problem must last before it is reported. A single delayed reading is not a problem.
const LASTS: Duration = Duration::from_secs(2);
/// Time after which a lasting problem is reported again.
const AGAIN: Duration = Duration::from_secs(60);
/// Largest number of leaders of other groups that one warning names.
const NAMED: usize = 4;
/// The remedy for a wrong wall clock of this host.
const REMEDY: &str = "set the clock of this host (`chronyc makestep`, `timedatectl set-ntp true`)";

/// A problem with a clock.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Trouble {
    /// The wall clock of this host is ahead of the median by this many ns (negative: behind it), which is more than the
    /// bound. `None`: it shows a time before 1970 or after 2116.
    Own(Option<i64>),
    /// The time of the group that this member leads is ahead of the median by this many ns (negative: behind it), which
    /// is more than the bound.
    Time(i64),
    /// Leaders of other groups whose times differ from this group's by more than the bound, and by how many ns each is
    /// ahead.
    Groups(Vec<(ProcessId, i64)>),
}

impl Trouble {
    /// Returns whether the other problem is of the same kind; the amounts may differ.
    fn is_like(&self, other: &Trouble) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// A problem that existed at the last check.
#[derive(Clone, Debug)]
struct Lasting {
    trouble: Trouble,
    /// Time of the check that first found the problem.
    since: Duration,
    /// Time of the last report of the problem; `None` if it was not reported.
    told: Option<Duration>,
    /// `true` if the current check has found the problem.
    seen: bool,
}

/// The clock problems of this node, and which of them have been reported.
#[derive(Debug, Default)]
pub struct Clocks {
    lasting: Vec<Lasting>,
}

/// A message for the operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClockNotice {
    /// A problem exists.
    Warn(String),
    /// A reported problem has ended.
    Info(String),
}

impl Clocks {
    /// Checks a member's clocks, and returns the messages that are due. `stands_back` means that the member leaves the
    /// lead to another member that can lead.
    pub fn look(
        &mut self,
        now: Duration,
        clock: &PhysicalClock,
        stands_back: bool,
        plan: &ClusterRuntime,
    ) -> Vec<ClockNotice> {
        let mut said = Vec::new();
        self.lasting.iter_mut().for_each(|lasting| lasting.seen = false);
        for trouble in troubles(clock) {
            let lasting = self.note(trouble, now);
            let told = lasting.told.is_some_and(|told| now.saturating_sub(told) < AGAIN);
            if !told && now.saturating_sub(lasting.since) >= LASTS {
                lasting.told = Some(now);
                said.push(ClockNotice::Warn(warning(&lasting.trouble, clock, stands_back, plan)));
            }
        }
        self.lasting.retain(|lasting| {
            if !lasting.seen && lasting.told.is_some() {
                said.push(ClockNotice::Info(over(&lasting.trouble)));
            }
            lasting.seen
        });
        said
    }

    /// Records that this check found a problem.
    fn note(&mut self, trouble: Trouble, now: Duration) -> &mut Lasting {
        let at = self.lasting.iter().position(|lasting| lasting.trouble.is_like(&trouble)).unwrap_or_else(|| {
            self.lasting.push(Lasting { trouble: trouble.clone(), since: now, told: None, seen: true });
            self.lasting.len() - 1
        });
        let lasting = &mut self.lasting[at];
        (lasting.trouble, lasting.seen) = (trouble, true);
        lasting
    }
}

/// Returns the current problems.
fn troubles(clock: &PhysicalClock) -> Vec<Trouble> {
    let mut troubles = Vec::new();
    if clock.is_off() {
        troubles.push(Trouble::Own(clock.off()));
    }
    if let Some(ahead) = clock.ahead().filter(|ahead| ahead.unsigned_abs() > clock.bound()) {
        troubles.push(Trouble::Time(ahead));
    }
    let apart: Vec<_> = clock.apart().take(NAMED).collect();
    if !apart.is_empty() {
        troubles.push(Trouble::Groups(apart));
    }
    troubles
}

/// Returns the warning about a problem.
fn warning(trouble: &Trouble, clock: &PhysicalClock, stands_back: bool, plan: &ClusterRuntime) -> String {
    let bound = clock.bound() / 1_000_000;
    match trouble {
        Trouble::Own(off) => {
            let off =
                off.map_or_else(|| "before 1970 or after 2116".to_owned(), |off| format!("{} the median", away(off)));
            let leads = if stands_back {
                "it does not lead while another member can"
            } else {
                "it may lead, for want of a member whose clock is right"
            };
            let clocks = clock.counted();
            format!("the clock of this host is {off} of {clocks} clocks (clock_bound_ms = {bound}): {leads}; {REMEDY}")
        }
        Trouble::Time(ahead) => {
            let away = away(*ahead);
            format!(
                "the time of this group is {away} the median of {} clocks: it is slewed by 0.05 %, never set; other groups refuse \
                 a time that is ahead by more than clock_bound_ms = {bound}; if it does not mend, raise that",
                clock.counted()
            )
        }
        Trouble::Groups(apart) => {
            let of = |(process, ahead): &(ProcessId, i64)| format!("{} is {}", plan.name(*process), away(*ahead));
            let all: Vec<_> = apart.iter().map(of).collect();
            format!(
                "leaders of other groups whose times differ from this group's by more than clock_bound_ms = {bound}: {} it; \
                 messages to both groups wait until clocks agree; set the clocks of their hosts, or raise clock_bound_ms",
                all.join(", ")
            )
        }
    }
}

/// Returns the message which reports that a problem has ended.
fn over(trouble: &Trouble) -> String {
    match trouble {
        Trouble::Own(_) => "the clock of this host is right again, or no other is known",
        Trouble::Time(_) => {
            "the time of this group agrees with the clocks again, or this member does not lead any more"
        }
        Trouble::Groups(_) => "the times of other groups agree with this group's again",
    }
    .to_owned()
}

/// Returns a distance as words that precede a noun, such as "120 ms ahead of". `ahead` is in nanoseconds.
fn away(ahead: i64) -> String {
    let way = if ahead < 0 { "behind" } else { "ahead of" };
    let ms = ahead.unsigned_abs() / 1_000_000;
    if ms < 100_000 { format!("{ms} ms {way}") } else { format!("{} s {way}", ms / 1000) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::ClusterConfig;

    const NOW: u64 = 1_795_000_000_000_000_000;
    const YEAR: u64 = 365 * 86_400 * 1_000_000_000;

    fn plan() -> ClusterRuntime {
        let text = "cluster = \"c\"\nfabric = \"shm\"\n[limits]\nclients = 1\n[[group]]\nid = \"g1\"\nprocess = [\
                    { id = \"a\", address = \"h:1\" }, { id = \"b\", address = \"h:2\" }]\n";
        ClusterRuntime::new(ClusterConfig::parse(Path::new("c.toml"), text).expect("a valid file"))
            .expect("a possible cluster")
    }

    fn heard(clock: &mut PhysicalClock, now: u64, own: u64) {
        clock.tell(now, NOW + now + own).expect("a valid reading");
        for process in [1, 2] {
            clock.hear(ProcessId(process), NOW + now, None).expect("a valid reading");
        }
        clock.pass(now);
    }

    #[test]
    fn lasting_clock_error_is_reported_and_so_is_its_end() {
        let (mut clocks, plan) = (Clocks::default(), plan());
        let mut clock = PhysicalClock::new(PhysicalClock::BOUND, 3);
        heard(&mut clock, 1, YEAR);
        let look =
            |clocks: &mut Clocks, clock: &PhysicalClock, ms| clocks.look(Duration::from_millis(ms), clock, true, &plan);
        assert_eq!(look(&mut clocks, &clock, 100), []);
        let said = look(&mut clocks, &clock, 2_100);
        let [ClockNotice::Warn(text)] = &said[..] else { panic!("{said:?}") };
        assert!(
            text.contains("31536000 s ahead of the median of 3 clocks") && text.contains("does not lead"),
            "{text}"
        );
        assert_eq!(look(&mut clocks, &clock, 2_200), []);
        assert_eq!(look(&mut clocks, &clock, 62_100).len(), 1, "reported again after a minute");
        heard(&mut clock, 2, 0);
        assert!(matches!(look(&mut clocks, &clock, 62_200)[..], [ClockNotice::Info(_)]));
        assert_eq!(look(&mut clocks, &clock, 62_300), []);
    }

    #[test]
    fn groups_whose_times_differ_are_named() {
        let (mut clocks, plan) = (Clocks::default(), plan());
        let mut clock = PhysicalClock::new(PhysicalClock::BOUND, 2);
        heard(&mut clock, 1, 0);
        clock.follow(0, true);
        clock.hear(ProcessId(1), NOW, Some(NOW + YEAR)).expect("a valid reading");
        clock.pass(2);
        assert_eq!(clocks.look(Duration::ZERO, &clock, false, &plan), []);
        let said = clocks.look(LASTS, &clock, false, &plan);
        let [ClockNotice::Warn(text)] = &said[..] else { panic!("{said:?}") };
        assert!(text.contains("b is 31535999 s ahead of it") || text.contains("b is 31536000 s ahead of it"), "{text}");
    }
}
