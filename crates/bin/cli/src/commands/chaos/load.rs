//! The load: clients that multicast messages of all lengths to any groups and record them. The clients are threads of
//! this process.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

use stentor::runtime::{Client, ClientId, ClusterRuntime, FabricDiagnostics, GroupId, StartError};
use stentor_fabric::ProcessId;
use stentor_fabric_sim::SimRng;
use stentor_support::Failure;
use stentor_support::live::{Joined, Joining, RecordedClient, lock, no_thread};

use super::PLACE;
use super::clients::Clients;
use super::clock::RunClock;
use super::hang::Waiting;
use super::scene::Scene;
use crate::args;

/// The time within which a client must join.
const JOINING: Duration = Duration::from_secs(60);
/// Longest delay that a client makes up for. The client skips messages that were due even earlier.
const LATE: Duration = Duration::from_millis(20);
/// The longest sleep while nothing is due.
const SLEEP: Duration = Duration::from_millis(5);
/// The interval at which a client publishes its status.
const TELL: Duration = Duration::from_millis(5);
/// The interval at which records are flushed to the file.
const WRITE: Duration = Duration::from_secs(1);
/// Largest number of messages of one client that are not known to be delivered by majorities.
const IN_FLIGHT: usize = 64;
/// One in this many messages has the maximum length.
const LONGEST_OF: u64 = 64;

/// The client multicasts.
const SEND: u8 = 0;
/// The client multicasts nothing more and waits for deliveries.
const DRAIN: u8 = 1;
/// The client ends.
const END: u8 = 2;

/// The status that a client publishes.
#[derive(Debug, Default)]
struct ClientStatus {
    joined: bool,
    waiting: Option<Waiting>,
    /// For each member, `true` if the client counts it for flow control.
    counts_on: Vec<bool>,
    /// The number of messages that some counted process has not delivered, including a message that has found no room
    /// yet.
    outstanding: usize,
    multicast: u64,
    failure: Option<Failure>,
    ended: bool,
}

/// The state that clients and conductor share.
#[derive(Debug)]
struct Shared {
    status: Mutex<ClientStatus>,
    phase: Arc<AtomicU8>,
    delivered: Arc<AtomicU64>,
    clock: Arc<RunClock>,
}

impl Shared {
    fn status(&self) -> MutexGuard<'_, ClientStatus> {
        lock(&self.status)
    }
}

/// The threads of all clients.
pub(super) struct Loads<'a> {
    plan: &'a ClusterRuntime,
    scene: &'a Scene,
    args: &'a args::Chaos,
    seed: u64,
    clients: Vec<Arc<Shared>>,
    phase: Arc<AtomicU8>,
    delivered: Arc<AtomicU64>,
    clock: Arc<RunClock>,
}

/// A guard that ends the clients when it is dropped.
pub(super) struct EndWith(Arc<AtomicU8>);

impl Drop for EndWith {
    fn drop(&mut self) {
        self.0.store(END, Ordering::Relaxed);
    }
}

impl<'a> Loads<'a> {
    pub(super) fn new(plan: &'a ClusterRuntime, scene: &'a Scene, args: &'a args::Chaos, seed: u64) -> Self {
        let (phase, delivered, clock) = (Arc::new(AtomicU8::new(SEND)), Arc::default(), Arc::default());
        let shared = |_| {
            let status = Mutex::new(ClientStatus::default());
            Arc::new(Shared {
                status,
                phase: Arc::clone(&phase),
                delivered: Arc::clone(&delivered),
                clock: Arc::clone(&clock),
            })
        };
        Loads { plan, scene, args, seed, clients: (0..args.clients).map(shared).collect(), phase, delivered, clock }
    }

    /// Starts a thread for each client. The client joins when the members are ready.
    pub(super) fn start<'scope, 'env, F: FabricDiagnostics>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        start: &'env (dyn Fn(ClientId) -> Result<Client<F>, StartError> + Sync),
    ) -> Result<(), Failure>
    where
        'a: 'env,
    {
        for (client, shared) in (0..).map(ClientId).zip(&self.clients) {
            let work = move || {
                let ended = self.run(client, shared, start);
                let mut status = shared.status();
                status.failure = ended.err();
                status.ended = true;
            };
            Builder::new().spawn_scoped(scope, work).map_err(|error| no_thread("for a client", &error))?;
        }
        Ok(())
    }

    fn run<F: FabricDiagnostics>(
        &self,
        client: ClientId,
        shared: &Shared,
        start: &dyn Fn(ClientId) -> Result<Client<F>, StartError>,
    ) -> Result<(), Failure> {
        let Loads { plan, scene, args, .. } = *self;
        let (config, sockets) = (scene.config(), scene.sockets());
        let over = || Failure::run("the run is over", PLACE, "start it again");
        let joining = Joining {
            wait: args.wait.into(),
            timeout: JOINING,
            check: &|| if shared.phase.load(Ordering::Relaxed) == END { Err(over()) } else { Ok(()) },
            ..Joining::to_all(plan, &config, &sockets, start)
        };
        let joined = joining.join(Some(client), |_| ())?;
        Load::new(self, shared, joined)?.run()
    }

    /// Describes what a client waits for.
    fn tell(&self, client: ClientId, waiting: &Waiting) -> String {
        let name = self.plan.name(self.plan.topology().client_process(client));
        waiting.sequence.map_or_else(
            || format!("`{name}` finds no room for its next message"),
            |sequence| format!("message {sequence} of `{name}` is not delivered by majorities"),
        )
    }

    pub(super) fn end_with(&self) -> EndWith {
        EndWith(Arc::clone(&self.phase))
    }
}

impl Clients for Loads<'_> {
    fn clock(&self) -> &RunClock {
        &self.clock
    }

    fn check(&self) -> Result<(), Failure> {
        self.clients.iter().find_map(|client| client.status().failure.clone()).map_or(Ok(()), Err)
    }

    fn are_in(&self) -> bool {
        self.clients.iter().all(|client| client.status().joined)
    }

    fn waiting(&self) -> Vec<(String, Waiting)> {
        let all = (0..).map(ClientId).zip(&self.clients);
        let all = all.filter_map(|(client, shared)| Some((client, shared.status().waiting.clone()?)));
        all.map(|(client, waiting)| (self.tell(client, &waiting), waiting)).collect()
    }

    fn count_on(&self, member: usize) -> bool {
        self.clients.iter().all(|client| client.status().counts_on.get(member) == Some(&true))
    }

    fn outstanding(&self) -> usize {
        self.clients.iter().map(|client| client.status().outstanding).sum()
    }

    fn begun(&self) -> u64 {
        self.clients.iter().map(|client| client.status().multicast).sum()
    }

    fn ended(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    fn kill(&self, _: u64, _: u64) -> Result<bool, Failure> {
        Ok(false)
    }

    fn drain(&self) {
        self.phase.store(DRAIN, Ordering::Relaxed);
    }

    fn end(&self) -> Result<(), Failure> {
        self.phase.store(END, Ordering::Relaxed);
        while !self.clients.iter().all(|client| client.status().ended) {
            std::thread::sleep(Duration::from_millis(2));
        }
        self.check()
    }
}

/// A message that was multicast.
struct Message {
    waiting: Waiting,
    /// For each destination, the message's slot in the client's order at that group.
    slots: Vec<(GroupId, u64)>,
}

/// The state of one client.
struct Load<'a, F: FabricDiagnostics> {
    plan: &'a ClusterRuntime,
    shared: &'a Shared,
    own: RecordedClient<F>,
    rng: SimRng,
    interval: Duration,
    due: Instant,
    /// A drawn message that found no room yet.
    next: Option<(Vec<GroupId>, Vec<u8>, u64)>,
    /// Messages not known to be delivered by majorities, the oldest first.
    sent: std::collections::VecDeque<Message>,
    /// For each group, the number of slots that a majority is known to have delivered. It never decreases.
    delivered: Vec<u64>,
    published: Instant,
    written: Instant,
}

impl<'a, F: FabricDiagnostics> Load<'a, F> {
    fn new(loads: &Loads<'a>, shared: &'a Shared, joined: Joined<F>) -> Result<Self, Failure> {
        let Loads { plan, scene, args, seed, .. } = loads;
        let me = plan.topology().client_process(joined.id);
        let (path, rng) = (scene.history(plan.name(me), 1), SimRng::new(*seed, 1 + u64::from(joined.id.0)));
        let mut own = RecordedClient::new(plan, joined, &path, args.wait.into(), PLACE)?;
        own.client.record_operations();
        let interval = Duration::from_secs(1) * u32::from(args.clients) / args.rate;
        shared.status().joined = true;
        Ok(Load {
            plan,
            shared,
            own,
            rng,
            interval,
            due: Instant::now(),
            next: None,
            sent: std::collections::VecDeque::new(),
            delivered: vec![0; plan.topology().groups()],
            published: Instant::now(),
            written: Instant::now(),
        })
    }

    fn run(mut self) -> Result<(), Failure> {
        loop {
            let phase = self.shared.phase.load(Ordering::Relaxed);
            if phase == END {
                return self.own.flush();
            }
            self.round(phase == SEND)?;
        }
    }

    fn round(&mut self, send: bool) -> Result<(), Failure> {
        let now = Instant::now();
        let mut worked = self.own.client.step();
        self.take_delivered();
        // A message that waited for room must still be sent.
        if (send || self.next.is_some()) && now >= self.due && self.sent.len() < IN_FLIGHT && self.send()? {
            self.due = (self.due + self.interval).max(now.checked_sub(LATE).unwrap_or(now));
            worked = true;
        }

        if self.own.client.is_superseded() {
            let name = self.plan.name(self.plan.topology().client_process(self.own.client.id()));
            let what = format_args!("another process has taken over client id `{name}`");
            return Err(Failure::run(what, PLACE, "run no other client on this cluster"));
        }
        if now - self.published >= TELL {
            self.published = now;
            self.tell();
        }
        if now - self.written >= WRITE {
            self.written = now;
            self.own.flush()?;
        }
        let longest = self.due.saturating_duration_since(now).clamp(Duration::from_micros(50), SLEEP);
        self.own.rest(worked, longest)
    }

    fn take_delivered(&mut self) {
        for (group, delivered) in (0..).map(GroupId).zip(&mut self.delivered) {
            *delivered = self.own.client.delivered_by_majority(group).max(*delivered);
        }
        let is_delivered =
            |message: &Message| message.slots.iter().all(|(group, slot)| self.delivered[usize::from(group.0)] > *slot);
        let before = self.sent.len();
        while self.sent.front().is_some_and(is_delivered) {
            self.sent.pop_front();
        }
        if before > 0
            && self.sent.is_empty()
            && let Some((.., since)) = &mut self.next
        {
            // Until now, the drawn message waited for the client's earlier messages.
            *since = self.shared.clock.now();
        }
        self.shared.delivered.fetch_add((before - self.sent.len()) as u64, Ordering::Relaxed);
    }

    /// Sends a message, unless there is no room.
    fn send(&mut self) -> Result<bool, Failure> {
        let (to, payload, since) = match self.next.take() {
            Some(next) => next,
            None => self.draw(),
        };
        let slots = to.iter().map(|group| (*group, self.own.client.next_slot(*group))).collect();
        let Some(id) = self.own.submit(&to, &payload, true, false)? else {
            self.next = Some((to, payload, since));
            return Ok(false);
        };
        let since = self.shared.clock.now();
        let waiting = Waiting { sequence: Some(id.sequence), to: indices(&to), since };
        self.sent.push_back(Message { waiting, slots });
        Ok(true)
    }

    /// Draws at least one destination group and a length: one time in [`LONGEST_OF`] the maximum, and otherwise a
    /// length whose order of magnitude is drawn first. Returns them with the present time.
    fn draw(&mut self) -> (Vec<GroupId>, Vec<u8>, u64) {
        let groups = self.plan.topology().groups() as u64;
        let first = self.rng.below(groups);
        let more = self.rng.below(4) < 2;
        let to = (0..groups).filter(|group| *group == first || (more && self.rng.below(2) == 1));
        let to = to.map(|group| GroupId(group as u16)).collect();
        let most = u64::from(self.plan.config().limits().message_bytes);
        let bits = self.rng.below(u64::from(most.ilog2()) + 1);
        let length = if self.rng.below(LONGEST_OF) == 0 { most } else { self.rng.below(1 << bits) };
        let mut payload: Vec<u8> = Vec::with_capacity(length as usize + 8);
        while payload.len() < length as usize {
            payload.extend(self.rng.word().to_le_bytes());
        }
        payload.truncate(length as usize);
        (to, payload, self.shared.clock.now())
    }

    fn tell(&mut self) {
        let waits = || {
            let (to, _, since) = self.next.as_ref()?;
            Some(Waiting { sequence: None, to: indices(to), since: *since })
        };
        let waiting = self.sent.front().map(|message| message.waiting.clone()).or_else(waits);
        let members = self.plan.topology().all_members() as u16;
        let mut status = self.shared.status();
        status.waiting = waiting;
        status.counts_on.clear();
        status.counts_on.extend((0..members).map(|member| self.own.client.counts_on(ProcessId(member))));
        status.outstanding = self.own.client.outstanding() + usize::from(self.next.is_some());
        status.multicast = self.own.client.submitted();
    }
}

fn indices(to: &[GroupId]) -> Vec<usize> {
    to.iter().map(|group| usize::from(group.0)).collect()
}
