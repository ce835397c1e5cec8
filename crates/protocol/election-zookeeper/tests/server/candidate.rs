//! Candidates in the test's process, which are polled together.

use std::time::{Duration, Instant};

use stentor_election::{Audit, Change, Election};
use stentor_election_zookeeper::{ZookeeperConfig, ZookeeperElection};
use stentor_fabric::ProcessId;

/// Time limit of every wait, longer than any machine needs.
const PATIENCE: Duration = Duration::from_secs(40);

pub(crate) const MEMBERS: [ProcessId; 5] = [ProcessId(0), ProcessId(1), ProcessId(2), ProcessId(3), ProcessId(4)];

pub(crate) fn config(me: u16, servers: &[&str], root: &str, session: Duration) -> ZookeeperConfig {
    let mut config = ZookeeperConfig::new(ProcessId(me), &MEMBERS, servers, root, "g1");
    config.session_timeout = session;
    config
}

pub(crate) struct Candidate {
    pub(crate) me: u16,
    pub(crate) election: ZookeeperElection,
    pub(crate) audit: Audit,
    pub(crate) log: Vec<Change>,
    /// `true` if the test polls this candidate.
    pub(crate) polled: bool,
}

impl Candidate {
    pub(crate) fn start(config: ZookeeperConfig) -> Self {
        let me = config.me;
        let election = ZookeeperElection::start(config).expect("a good configuration");
        Candidate { me: me.0, election, audit: Audit::new(me), log: Vec::new(), polled: true }
    }

    pub(crate) fn poll(&mut self) {
        while let Some(change) = self.election.poll(Duration::ZERO) {
            self.log.push(change);
            if let Err(error) = self.audit.check(change) {
                panic!("p{}: {error}: {:?}", self.me, self.log);
            }
        }
    }

    pub(crate) fn leader(&self) -> Option<(u64, u16)> {
        self.audit.leader().map(|(epoch, process)| (epoch, process.0))
    }
}

pub(crate) struct Group(pub(crate) Vec<Candidate>);

impl Group {
    /// Starts `count` candidates, which join the line in the order of their numbers.
    pub(crate) fn in_line(count: u16, servers: &[&str], root: &str, session: Duration) -> Self {
        let mut group = Group(Vec::new());
        for me in 0..count {
            group.0.push(Candidate::start(config(me, servers, root, session)));
            group.until("the next is in line", |group| {
                group.0[usize::from(me)].election.status().line.contains(&ProcessId(me))
            });
        }
        group.agree();
        group
    }

    pub(crate) fn poll(&mut self) {
        self.0.iter_mut().filter(|candidate| candidate.polled).for_each(Candidate::poll);
    }

    /// Polls until a condition is true. Returns the time that it took.
    pub(crate) fn until(&mut self, what: &str, so: impl Fn(&Group) -> bool) -> Duration {
        let begin = Instant::now();
        loop {
            self.poll();
            if so(self) {
                return begin.elapsed();
            }
            if begin.elapsed() > PATIENCE {
                let each = |c: &Candidate| format!("p{}: {:?}\n{:?}", c.me, c.log, c.election.status());
                panic!("waited in vain for: {what}\n{}", self.0.iter().map(each).collect::<Vec<_>>().join("\n"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the leader if all polled candidates name the same one, the leader included.
    pub(crate) fn agreed(&self) -> Option<(u64, u16)> {
        let mut polled = self.0.iter().filter(|candidate| candidate.polled);
        let leader = polled.clone().find_map(|candidate| candidate.leader().filter(|(_, p)| *p == candidate.me))?;
        polled.all(|candidate| candidate.leader() == Some(leader)).then_some(leader)
    }

    /// Waits until all polled candidates agree on a leader.
    pub(crate) fn agree(&mut self) -> (u64, u16) {
        self.until("all name the same leader", |group| group.agreed().is_some());
        self.agreed().expect("the candidates agree")
    }

    /// Waits until all polled candidates agree on another leader than before.
    pub(crate) fn agree_anew(&mut self, before: (u64, u16)) -> ((u64, u16), Duration) {
        let took = self.until("all name a new leader", |group| group.agreed().is_some_and(|leader| leader != before));
        (self.agreed().expect("the candidates agree"), took)
    }

    /// Polls the candidates while `work` runs on another thread, because an election that is not polled leaves the
    /// line. Returns the result of `work`.
    pub(crate) fn meanwhile<T: Send + 'static>(&mut self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let thread = std::thread::spawn(work);
        self.until("the rest is done", |_| thread.is_finished());
        thread.join().expect("the thread does not panic")
    }

    pub(crate) fn wakes(&self) -> Vec<u64> {
        self.0.iter().map(|candidate| candidate.election.status().wakes).collect()
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let begin = Instant::now();
        self.until("time passes", |_| begin.elapsed() >= time);
    }
}
