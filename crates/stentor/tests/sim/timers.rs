//! Timers of machines under simulation: leases that expire.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::time::Duration;

use stentor::sim::{Next, SimCluster, SimProperty, Turn};
use stentor::{Context, Frozen, ReadContext, Reply, SessionId, StateMachine};

/// Duration of a lease, in nanoseconds.
const LEASE_NS: u64 = 60_000;
/// Id of the lease's timer.
const LEASE: u64 = 1;

/// A lease that passes from one session to the next, in the order of their requests.
#[derive(Clone, Default)]
struct Lease {
    /// The holder, and then the sessions that wait.
    queue: VecDeque<SessionId>,
    /// Number of times that the lease has expired.
    runs_out: u64,
    plant: Plant,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Plant {
    #[default]
    None,
    /// A restored member counts an expiry that did not happen.
    CountsOne,
    /// An expired lease passes to nobody.
    Drops,
}

impl Lease {
    /// Starts or stops the timer after the first of the queue has changed.
    fn give(&self, at: &Context<'_>) {
        if self.queue.is_empty() { at.clear_timer(LEASE) } else { at.set_timer(at.time() + LEASE_NS, LEASE) }
    }

    fn reply(&self, reply: &mut Reply) {
        reply.extend(&self.runs_out.to_le_bytes());
        self.queue.iter().for_each(|session| reply.extend(&session.to_bytes()));
    }
}

impl StateMachine for Lease {
    type Frozen = Lease;

    fn apply(&mut self, at: &Context<'_>, command: &[u8], reply: &mut Reply) {
        let session = at.session().expect("a client with a session");
        let before = self.queue.front().copied();
        match command {
            b"take" if !self.queue.contains(&session) => self.queue.push_back(session),
            b"give" => self.queue.retain(|other| *other != session),
            _ => {}
        }
        if self.queue.front().copied() != before {
            self.give(at);
        }
        self.reply(reply);
    }

    fn read(&self, _: &ReadContext<'_>, _: &[u8], reply: &mut Reply) {
        self.reply(reply);
    }

    fn timer(&mut self, at: &Context<'_>, timer: u64) {
        assert!(timer == LEASE && at.session().is_none());
        assert!(!self.queue.is_empty(), "an expired lease has a holder");
        self.runs_out += 1;
        self.queue.pop_front();
        if self.plant == Plant::Drops {
            self.queue.clear();
        }
        self.give(at);
    }

    fn session_ended(&mut self, at: &Context<'_>, session: SessionId) {
        let before = self.queue.front().copied();
        self.queue.retain(|other| *other != session);
        if self.queue.front().copied() != before {
            self.give(at);
        }
    }

    fn freeze(&self) -> Lease {
        self.clone()
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes)?;
        let (runs_out, sessions) = bytes.split_first_chunk().expect("a number");
        self.runs_out = u64::from_le_bytes(*runs_out) + u64::from(self.plant == Plant::CountsOne);
        let session = |id: &[u8]| SessionId::from_bytes(id.try_into().expect("sixteen bytes"));
        self.queue = sessions.chunks(16).map(session).collect();
        Ok(())
    }
}

impl Frozen for Lease {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.runs_out.to_le_bytes())?;
        self.queue.iter().try_for_each(|session| out.write_all(&session.to_bytes()))
    }
}

fn leases(plant: Plant) -> SimCluster<Lease> {
    let script = |_| {
        |turn: &mut Turn<'_>| {
            let groups = turn.groups().to_vec();
            let group = groups[turn.random().below(groups.len() as u64) as usize];
            match turn.random().below(10) {
                0..=4 => Next::call(group, "take"),
                5 => Next::call(group, "give"),
                6 => Next::read(group, ""),
                // The wait is longer than a lease, so that the lease expires while no client calls.
                _ => Next::Wait(Duration::from_nanos(2 * LEASE_NS)),
            }
        }
    };
    SimCluster::new(move || Lease { plant, ..Lease::default() }, script).groups(2).clients(3)
}

#[test]
fn leases_expire_alike_at_all_members_without_calls() {
    let report = leases(Plant::None).run(0..150).unwrap();
    println!("{report}");
    assert!(report.count("answered") > 3000 && report.count("undecided") == 0, "{report}");
    assert!(report.count("time entries") > 1000 && report.count("leader changes") > 50, "{report}");
}

#[test]
fn a_seed_with_timers_reproduces_its_run() {
    let digest = |seed| leases(Plant::None).replay(seed).unwrap().digest();
    assert_eq!(digest(5), digest(5));
    assert_ne!(digest(5), digest(6));
}

#[test]
fn a_timer_that_differs_from_the_model_is_found() {
    let found = leases(Plant::Drops).model(Lease::default).run(0..200).expect_err("a mutant");
    assert_eq!(found.failure().expect("a seed that failed").property(), SimProperty::Calls);
}

#[test]
fn a_diverging_restored_member_is_found() {
    let found = leases(Plant::CountsOne).run(0..200).expect_err("a mutant");
    let property = found.failure().expect("a seed that failed").property();
    assert!(matches!(property, SimProperty::Calls | SimProperty::States), "{property:?}");
}

/// A machine that sets a timer for the present time when a session ends, and replies with the number of ends and of
/// timers.
#[derive(Clone, Copy, Default)]
struct Ends {
    ended: u64,
    fired: u64,
}

impl StateMachine for Ends {
    type Frozen = Ends;

    fn apply(&mut self, _: &Context<'_>, _: &[u8], reply: &mut Reply) {
        reply.extend(&[self.ended.to_le_bytes(), self.fired.to_le_bytes()].concat());
    }

    fn session_ended(&mut self, at: &Context<'_>, _: SessionId) {
        self.ended += 1;
        at.set_timer(at.time(), self.ended);
    }

    fn timer(&mut self, _: &Context<'_>, _: u64) {
        self.fired += 1;
    }

    fn freeze(&self) -> Ends {
        *self
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        for number in [&mut self.ended, &mut self.fired] {
            let mut bytes = [0; 8];
            from.read_exact(&mut bytes)?;
            *number = u64::from_le_bytes(bytes);
        }
        Ok(())
    }
}

impl Frozen for Ends {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        [self.ended, self.fired].iter().try_for_each(|number| out.write_all(&number.to_le_bytes()))
    }
}

#[test]
fn timers_set_by_the_end_of_a_session_fire_where_the_model_fires_them() {
    let script = |_| |turn: &mut Turn<'_>| Next::call(turn.groups()[0], "");
    let report = SimCluster::new(Ends::default, script).clients(3).run(0..300).unwrap();
    println!("{report}");
    assert!(report.count("answered") > 3000, "{report}");
}
