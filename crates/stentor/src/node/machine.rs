//! A state machine, as the protocol's thread drives it. The machine runs either on that thread or behind a queue on a
//! thread of its own.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use stentor_fabric::WaitMode;
use stentor_multicast::{self as multicast, ClientId, Delivered, GroupId, Incarnation, Readiness};
use stentor_session::{AnswerBuffer, ReadyRead};

use super::apply::{Applier, ApplyThread, Bounds, Head, Looks, Marks, Progress, QueryHead, Queue, Record};
use super::sleeper::Sleeper;
use crate::Position;
use crate::state_machine::StateMachine;

/// The protocol's handle to a state machine.
pub(super) struct Machine<S> {
    side: Side<S>,
    progress: Arc<Progress>,
    marks: Arc<Marks>,
    looks: Looks<S>,
}

/// The side on which the machine runs.
enum Side<S> {
    /// The machine runs on a separate thread, which consumes a queue.
    Own(Queue<S>),
    /// The machine runs on the protocol's thread.
    Here {
        applier: Box<Applier<S>>,
        /// The replies of this round.
        replies: AnswerBuffer,
        /// The destination groups of the present command.
        groups: Vec<GroupId>,
    },
}

impl<S: StateMachine> Machine<S> {
    /// Starts the machine. An apply thread of its own wakes the protocol's thread when there are replies or room.
    pub(super) fn start(
        applier: Applier<S>,
        on: ApplyThread,
        bounds: Bounds,
        wait: WaitMode,
        sleeper: Sleeper,
    ) -> io::Result<Self> {
        let (progress, looks) = (Arc::clone(applier.progress()), applier.looks().clone());
        let marks = Arc::clone(applier.marks());
        let side = match on {
            ApplyThread::Own => Side::Own(Queue::start(applier, bounds, wait, sleeper)?),
            ApplyThread::Protocol => {
                Side::Here { applier: Box::new(applier), replies: AnswerBuffer::default(), groups: Vec::new() }
            }
        };
        Ok(Machine { side, progress, marks, looks })
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.progress
    }

    pub(super) fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Poisons the machine, because a majority of the group reports that this machine differs from their machines. `at`
    /// is the first position at which a member of that majority reports the difference.
    #[cold]
    pub(super) fn give_up(&mut self, at: Position) {
        self.progress.note_poisoned(at);
        if let Side::Here { applier, .. } = &mut self.side {
            applier.give_up_if_outvoted();
        }
    }

    pub(super) fn looks(&self) -> &Looks<S> {
        &self.looks
    }

    /// Collects the replies to applied commands, before a round of the protocol.
    #[inline]
    pub(super) fn begin_round(&mut self, replied: impl FnMut(&AnswerBuffer)) {
        if let Side::Own(queue) = &mut self.side {
            queue.begin_round(replied);
        }
    }

    /// Ends a round of the protocol: hands the delivered commands to the apply thread, or passes the replies of a
    /// machine on this thread to `replied`.
    #[inline]
    pub(super) fn end_round(&mut self, mut replied: impl FnMut(&AnswerBuffer)) {
        match &mut self.side {
            Side::Own(queue) => queue.end_round(),
            Side::Here { applier, replies, .. } => {
                applier.note_due();
                applier.answer();
                applier.serve_observers();
                if !replies.is_empty() {
                    replied(replies);
                    replies.clear();
                }
            }
        }
    }

    /// Hands the delivered commands to the apply thread before the round ends.
    #[inline]
    pub(super) fn hand_over(&mut self) {
        if let Side::Own(queue) = &mut self.side {
            queue.end_round();
        }
    }

    /// Answers pending looks, if the machine is on this thread.
    pub(super) fn answer(&self) {
        if let Side::Here { applier, .. } = &self.side {
            applier.answer();
        }
    }

    /// Returns whether the other thread is about to return replies, so that a sleep does not pay.
    #[inline]
    pub(super) fn is_about_to_return(&self) -> bool {
        matches!(&self.side, Side::Own(queue) if queue.is_about_to_return())
    }

    /// Repeats the replies that this client has not acknowledged.
    pub(super) fn say_again(&mut self, client: ClientId) {
        match &mut self.side {
            Side::Own(queue) => queue.say_again(client),
            Side::Here { applier, replies, .. } => applier.say_again(client, replies),
        }
    }

    /// Answers a query after all delivered commands have been applied. `origin` is the origin of the history that the
    /// value belongs to.
    pub(super) fn read(&mut self, read: &ReadyRead<'_>, origin: Incarnation) {
        let head = QueryHead::of(read, origin);
        match &mut self.side {
            Side::Own(queue) => queue.push_query(head, read.query),
            Side::Here { applier, replies, .. } => applier.read(head, read.query, replies),
        }
    }

    /// Restores the initial value, after a panic.
    pub(super) fn start_over(&mut self) {
        match &mut self.side {
            Side::Own(queue) => queue.start_over(),
            Side::Here { applier, .. } => applier.restore(0, VecDeque::new()),
        }
    }

    /// Waits until all delivered commands are applied, and returns the applier.
    ///
    /// # Errors
    /// Returns the number of commands that are not applied yet, if the wait takes too long.
    pub(super) fn stop(self) -> Result<Applier<S>, usize> {
        match self.side {
            Side::Own(queue) => queue.stop(),
            Side::Here { applier, .. } => Ok(*applier),
        }
    }

    /// Accepts a delivery. Returns the applied command, if the machine is on this thread and has applied one.
    #[inline]
    pub(super) fn deliver<'a>(&mut self, delivered: &Delivered<'a>) -> Option<&'a [u8]> {
        match &mut self.side {
            Side::Own(queue) => {
                queue.push(delivered);
                None
            }
            Side::Here { applier, replies, groups } => {
                groups.clear();
                groups.extend(delivered.groups.iter());
                let record = Record { head: Head::of(delivered), groups, command: delivered.payload };
                let bytes = applier.apply(&record, replies)?;
                delivered.payload.get(delivered.payload.len().checked_sub(bytes)?..)
            }
        }
    }

    /// Returns whether there is room for another command.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        match &self.side {
            Side::Own(queue) => queue.has_room(),
            Side::Here { .. } => !self.progress.is_ill(),
        }
    }

    /// Returns whether there is room for another query, no matter how many commands wait.
    #[inline]
    pub(super) fn has_room_for_queries(&self) -> bool {
        match &self.side {
            Side::Own(queue) => queue.has_room_for_queries(),
            Side::Here { .. } => !self.progress.is_ill(),
        }
    }

    /// Freezes the value after all delivered commands have been applied to it.
    pub(super) fn freeze(&mut self) -> Box<dyn multicast::Frozen> {
        match &mut self.side {
            Side::Own(queue) => queue.freeze(),
            Side::Here { applier, .. } => {
                applier.freeze().map_or_else(|| Box::new(Unfrozen) as _, |state| Box::new(state) as _)
            }
        }
    }

    /// Restores a state of `number` commands. A failure is reported in the [`Progress`].
    pub(super) fn restore(&mut self, number: u64, chunks: VecDeque<Vec<u8>>) {
        match &mut self.side {
            Side::Own(queue) => queue.restore(number, chunks),
            Side::Here { applier, .. } => applier.restore(number, chunks),
        }
    }
}

/// The frozen state of an unusable machine: reading it fails.
struct Unfrozen;

impl multicast::Frozen for Unfrozen {
    fn read(&mut self, _: &mut Vec<u8>, _: usize) {}

    fn readiness(&mut self) -> Readiness {
        Readiness::Failed
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Mutex;

    use stentor_multicast::{Ballot, DestinationGroups, Incarnation, MessageId, Timestamp};
    use stentor_session::{Body, Envelope, Kind, Pair, ReplyRecord, Sessions, Timers, pairs_tag};

    use super::*;
    use crate::Group;
    use crate::config::Limits;
    use crate::node::journal::logged;
    use crate::observer::place::Place;
    use crate::{Cluster, Context, Reply, Stateless};

    /// The random word of the message that opens a session.
    const WORD: u64 = 9;

    struct Places(Vec<(Group, Position)>);

    impl StateMachine for Places {
        type Frozen = Stateless;

        fn apply(&mut self, at: &Context<'_>, _: &[u8], _: &mut Reply) {
            self.0.push((at.group(), at.position()));
        }

        fn freeze(&self) -> Stateless {
            Stateless
        }

        fn restore(&mut self, _: &mut dyn Read) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn commands_of_the_same_time_have_the_same_order_in_all_groups() {
        let members = |host: &str| ["a", "b", "c"].map(|name| (format!("{host}{name}"), format!("{host}{name}:1")));
        let cluster = Cluster::builder("c").group("g1", members("x")).group("g2", members("y")).build();
        let cluster = cluster.expect("a sound cluster");
        let groups: Vec<_> = cluster.groups().collect();
        let places = [groups[0], groups[1]].map(|group| {
            let applier = Applier::new(Places(Vec::new()), ("a", &logged("a")), group, cluster.runtime());
            let applier = applier.expect("the initial state can be written");
            let machine =
                Machine::start(applier, ApplyThread::Own, Bounds::default(), WaitMode::ADAPTIVE, Sleeper::default());
            let mut machine = machine.expect("the machine starts");
            for (number, group) in [(1, 0), (2, 1)] {
                machine.deliver(&Delivered {
                    id: MessageId { client: ClientId(0), sequence: number },
                    timestamp: Timestamp { time: 5, group },
                    number,
                    ballot: Ballot::default(),
                    origin: Incarnation::FIRST,
                    groups: DestinationGroups::default(),
                    enveloped: false,
                    payload: &[],
                });
            }
            machine.end_round(|_| ());
            let places = stopped(machine).0;
            assert!(places.iter().all(|(applies, _)| *applies == group));
            [places[0].1, places[1].1]
        });
        assert!(places[1][0] < places[0][1] && places[0][0] < places[1][1], "{places:?}");
    }

    fn stopped<S: StateMachine>(machine: Machine<S>) -> S {
        machine.stop().ok().and_then(Applier::into_machine).expect("the machine is not poisoned")
    }

    /// A machine that sets a timer 10 ns after each command, and records the calls of its methods. It panics when timer
    /// 4 or a later one fires.
    #[derive(Clone, Default)]
    struct Calls(Arc<Mutex<Vec<(String, u64, u64)>>>);

    impl Calls {
        fn note(&self, at: &Context<'_>, timer: u64) {
            self.0.lock().expect("no thread panics while it holds the lock").push((
                at.sender().to_owned(),
                at.position().index,
                timer,
            ));
        }
    }

    impl StateMachine for Calls {
        type Frozen = Stateless;

        fn apply(&mut self, at: &Context<'_>, _: &[u8], _: &mut Reply) {
            self.note(at, 0);
            at.set_timer(at.time() + 10, at.position().index);
        }

        fn timer(&mut self, at: &Context<'_>, timer: u64) {
            assert!(timer < 4, "too many");
            self.note(at, timer);
        }

        fn freeze(&self) -> Stateless {
            Stateless
        }

        fn restore(&mut self, _: &mut dyn Read) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_time_entry_is_not_a_command_and_fires_due_timers() {
        let members = ["a", "b", "c"].map(|name| (name, format!("{name}:1")));
        let cluster = Cluster::builder("c").group("g1", members).build().expect("a sound cluster");
        let group = cluster.group("g1").expect("the group is in the configuration");
        let calls = Calls::default();
        let applier = Applier::new(calls.clone(), ("a", &logged("a")), group, cluster.runtime());
        let (bounds, sleeper) = (Bounds::default(), Sleeper::default());
        let applier = applier.expect("the initial state can be written");
        let machine = Machine::start(applier, ApplyThread::Protocol, bounds, WaitMode::ADAPTIVE, sleeper);
        let mut machine = machine.expect("the machine starts");
        let mut number = 0;
        // Returns when something is due next, and the index at which the machine has panicked.
        let mut deliver = |time, client| {
            number += 1;
            machine.deliver(&Delivered {
                id: MessageId { client, sequence: number },
                timestamp: Timestamp { time, group: 0 },
                number,
                ballot: Ballot::default(),
                origin: Incarnation::FIRST,
                groups: DestinationGroups::default(),
                enveloped: false,
                payload: &[],
            });
            machine.end_round(|_| panic!("no client is to be answered"));
            let progress = machine.progress();
            assert_eq!(progress.due(number + 1), None, "nobody knows");
            (progress.due(number), progress.poisoned().map(|at| at.index))
        };
        let (client, time) = (ClientId(1), cluster.runtime().topology().time_client(GroupId(0)));
        for (at, sender, due) in
            [(5, client, 15), (7, client, 15), (14, time, 15), (15, time, 17), (17, client, 27), (26, time, 27)]
        {
            assert_eq!(deliver(at, sender), (Some(due), None), "at {at}");
        }
        let called = calls.0.lock().expect("no thread panics while it holds the lock").clone();
        let called = called.iter().map(|(sender, index, timer)| (sender.as_str(), *index, *timer)).collect::<Vec<_>>();
        let before_the_command = [("c1", 5, 2), ("c1", 5, 0)];
        assert_eq!(called[..3], [("c1", 1, 0), ("c1", 2, 0), ("g1", 4, 1)]);
        assert_eq!(called[3..], before_the_command);
        assert_eq!(deliver(27, time), (None, Some(7)), "its timer is one too many");
    }

    /// A machine that counts commands, and replies with the count.
    #[derive(Clone, Default)]
    struct Count(u64);

    impl StateMachine for Count {
        type Frozen = Count;

        fn apply(&mut self, at: &Context<'_>, command: &[u8], reply: &mut Reply) {
            self.0 += 1;
            assert_eq!((at.position().index, command), (self.0, &[7; 9][..]));
            reply.extend(&self.0.to_le_bytes());
        }

        fn freeze(&self) -> Count {
            self.clone()
        }

        fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
            let mut bytes = [0; 8];
            from.read_exact(&mut bytes)?;
            self.0 = u64::from_le_bytes(bytes);
            Ok(())
        }
    }

    impl crate::Frozen for Count {
        fn write(self, out: &mut dyn io::Write) -> io::Result<()> {
            out.write_all(&self.0.to_le_bytes())
        }
    }

    /// Returns a machine on each kind of thread. The queue of the apply thread has room for four commands.
    fn counts() -> [Machine<Count>; 2] {
        counts_for(&Sleeper::default())
    }

    /// Returns the machines of `counts`. Their apply thread wakes this sleeper.
    fn counts_for(sleeper: &Sleeper) -> [Machine<Count>; 2] {
        let members = ["a", "b", "c"].map(|name| (name, format!("{name}:1")));
        let cluster = Cluster::builder("c").group("g", members).build().expect("a sound cluster");
        let group = cluster.groups().next().expect("the cluster has a group");
        [ApplyThread::Own, ApplyThread::Protocol].map(|on| {
            let applier = Applier::new(Count::default(), ("a", &logged("a")), group, cluster.runtime())
                .expect("the initial state can be written");
            let bounds = Bounds { commands: 4, bytes: 1 << 20 };
            Machine::start(applier, on, bounds, WaitMode::ADAPTIVE, sleeper.clone()).expect("the machine starts")
        })
    }

    fn deliver<S: StateMachine>(machine: &mut Machine<S>, numbers: std::ops::RangeInclusive<u64>) {
        for number in numbers {
            machine.deliver(&Delivered {
                id: MessageId { client: ClientId(0), sequence: 2 * number },
                timestamp: Timestamp { time: number, group: 0 },
                number,
                ballot: Ballot::default(),
                origin: Incarnation::FIRST,
                groups: DestinationGroups::from_words(&[0]),
                enveloped: false,
                payload: &[7; 9],
            });
        }
    }

    /// Runs rounds until `until` holds. There are no replies, because no message has an envelope.
    fn rounds(machine: &mut Machine<Count>, mut until: impl FnMut(&Machine<Count>) -> bool) {
        let (mut done, since) = (false, std::time::Instant::now());
        while !done {
            assert!(since.elapsed() < std::time::Duration::from_secs(20), "it hangs");
            done = until(machine);
            machine.begin_round(|_| panic!("no client is to be answered"));
            machine.end_round(|_| panic!("no client is to be answered"));
        }
    }

    #[test]
    fn room_ends_at_the_bound_and_comes_back_when_commands_are_applied() {
        let [mut own, mut here] = counts();
        deliver(&mut own, 1..=3);
        assert!(own.has_room());
        deliver(&mut own, 4..=4);
        assert!(!own.has_room());
        rounds(&mut own, Machine::has_room);
        deliver(&mut own, 5..=5);
        rounds(&mut own, |machine| machine.progress().commands() == 5);
        deliver(&mut here, 1..=5);
        rounds(&mut here, |_| true);
        assert_eq!(here.progress().commands(), 5);
        assert_eq!(own.progress().applied().map(|at| at.index), Some(5));
    }

    /// A machine that takes 1 ms for a command.
    struct Slow;

    impl StateMachine for Slow {
        type Frozen = Stateless;

        fn apply(&mut self, _: &Context<'_>, _: &[u8], _: &mut Reply) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }

        fn freeze(&self) -> Stateless {
            Stateless
        }

        fn restore(&mut self, _: &mut dyn Read) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn room_ends_early_when_commands_have_taken_long() {
        let (sleeper, (wake, woken)) = (Sleeper::default(), std::sync::mpsc::channel());
        sleeper.set(stentor_fabric::Waker::new(move || _ = wake.send(())));
        let cluster = Cluster::builder("c").group("g", [("a", "a:1")]).build().expect("a sound cluster");
        let group = cluster.groups().next().expect("the cluster has a group");
        let applier = Applier::new(Slow, ("a", &logged("a")), group, cluster.runtime())
            .expect("the initial state can be written");
        let machine = Machine::start(applier, ApplyThread::Own, Bounds::default(), WaitMode::BLOCK, sleeper);
        let mut machine = machine.expect("the machine starts");
        deliver(&mut machine, 1..=32);
        assert!(machine.has_room(), "the time of a command is not known yet");
        machine.end_round(|_| panic!("no client is to be answered"));
        woken.recv_timeout(std::time::Duration::from_secs(20)).expect("a batch returns");
        machine.begin_round(|_| panic!("no client is to be answered"));
        deliver(&mut machine, 33..=47);
        assert!(machine.has_room());
        deliver(&mut machine, 48..=48);
        assert!(!machine.has_room(), "sixteen of them wait");
    }

    #[test]
    fn the_apply_thread_wakes_the_sleeping_protocol_thread() {
        let (sleeper, (wake, woken)) = (Sleeper::default(), std::sync::mpsc::channel());
        sleeper.set(stentor_fabric::Waker::new(move || _ = wake.send(())));
        let [mut own, _] = counts_for(&sleeper);
        deliver(&mut own, 1..=3);
        own.end_round(|_| panic!("no client is to be answered"));
        assert_eq!(woken.recv_timeout(std::time::Duration::from_secs(20)), Ok(()));
        assert_eq!(own.progress().commands(), 3);
    }

    /// The payload of a session's message to the group of the tests.
    fn in_envelope(kind: Kind, request: u64, rest: &[u8]) -> Vec<u8> {
        let pair = Pair { group: GroupId(0), incarnation: Incarnation::FIRST };
        let session = stentor_session::SessionId(5);
        let pairs = pairs_tag(WORD, [pair]);
        let envelope = Envelope { session, request, end: 1 << 37, pairs, generation: 1, behind: 0, kind };
        let mut out = vec![0; Envelope::BYTES];
        envelope.write((&mut out[..]).try_into().expect("the slice has this length"));
        if kind == Kind::Open {
            Body { ttl: 1 << 38, pairs: vec![pair], ..Body::default() }.write(&mut out);
        }
        [&out[..], rest].concat()
    }

    #[test]
    fn a_command_applied_on_this_thread_is_returned_once_without_its_envelope() {
        let cluster = Cluster::builder("c").group("g", [("a", "a:1")]).build().expect("a sound cluster");
        let group = cluster.groups().next().expect("the cluster has a group");
        let start = |on| {
            let applier = Applier::new(Places(Vec::new()), ("a", &logged("a")), group, cluster.runtime())
                .expect("the initial state can be written");
            Machine::start(applier, on, Bounds::default(), WaitMode::ADAPTIVE, Sleeper::default())
                .expect("the machine starts")
        };
        let (mut here, mut own) = (start(ApplyThread::Protocol), start(ApplyThread::Own));
        let command = in_envelope(Kind::Command, 1, b"line");
        let cases = [
            (false, b"bare".to_vec(), Some(&b"bare"[..])),
            (true, in_envelope(Kind::Open, WORD, b""), None),
            (true, command.clone(), Some(b"line")),
            (true, command, None),
            (true, in_envelope(Kind::Query, 2, b"query"), None),
            (true, b"no envelope".to_vec(), None),
        ];
        for (number, (enveloped, payload, applied)) in (1..).zip(cases) {
            let delivered = Delivered {
                id: MessageId { client: ClientId(0), sequence: number },
                timestamp: Timestamp { time: number, group: 0 },
                number,
                ballot: Ballot::default(),
                origin: Incarnation::FIRST,
                groups: DestinationGroups::from_words(&[0]),
                enveloped,
                payload: &payload,
            };
            assert_eq!((here.deliver(&delivered), own.deliver(&delivered)), (applied, None), "{number}");
        }
        assert_eq!(stopped(here).0.len(), 2);
        own.end_round(|_| ());
        assert_eq!(stopped(own).0.len(), 2);
    }

    #[test]
    fn a_frozen_value_has_all_earlier_deliveries_and_no_later_ones() {
        for mut machine in counts() {
            deliver(&mut machine, 1..=3);
            let mut state = machine.freeze();
            deliver(&mut machine, 4..=4);
            let mut bytes = Vec::new();
            rounds(&mut machine, |_| {
                if state.readiness() == Readiness::Ready {
                    state.read(&mut bytes, 1000);
                }
                bytes.len() > 8
            });
            // The value follows the table of sessions and the timers.
            assert_eq!(bytes[bytes.len() - 8..], 3_u64.to_le_bytes());
            assert_eq!(stopped(machine).0, 4);
        }
    }

    #[test]
    fn a_state_is_restored_in_order_and_an_invalid_one_is_a_failure() {
        for (mut machine, is_cut) in counts().into_iter().chain(counts()).zip([true, true, false, false]) {
            deliver(&mut machine, 1..=2);
            let mut restore = |number: u64, bytes: &[u8]| {
                let chunks = VecDeque::from([bytes[..3].to_vec(), bytes[3..].to_vec()]);
                machine.restore(number, chunks);
                let here = matches!(machine.side, Side::Here { .. });
                assert!(here || !machine.has_room(), "the state is not restored yet");
                rounds(&mut machine, |machine| machine.has_room() || machine.progress().failure().is_some());
                (machine.progress().commands(), machine.progress().failure().is_some())
            };
            let state = |index: u64| {
                let mut state = Vec::new();
                Sessions::new(GroupId(0), Limits::DEFAULT.sessions()).write(&mut state);
                Timers::default().write(&mut state);
                Place { index, ..Place::default() }.write(&mut state);
                state.extend(1_u32.to_le_bytes());
                state.extend(0_u64.to_le_bytes());
                state.extend_from_slice(&index.to_le_bytes());
                state
            };
            assert_eq!(restore(40, &state(40)), (40, false));
            let wrong = if is_cut { state(50) } else { state(49) };
            assert_eq!(restore(50, &wrong[..wrong.len() - 3 * usize::from(is_cut)]), (40, true), "{is_cut}");
            deliver(&mut machine, 41..=41);
            rounds(&mut machine, |_| true);
            assert!(!machine.has_room() && machine.stop().is_ok_and(|applier| applier.into_machine().is_none()));
        }
    }

    /// A read at a new leader follows the clock that the leader has recovered, but commands with earlier times may
    /// still be delivered.
    #[test]
    fn an_answer_names_its_place_and_the_time_that_it_follows() {
        let [_, mut here] = counts();
        deliver(&mut here, 1..=3);
        here.read(&ReadyRead { client: ClientId(0), name: 5, time: 70, query: b"" }, Incarnation::FIRST);
        let mut answers = 0;
        here.end_round(|replies| {
            for answer in replies.iter() {
                let record = ReplyRecord::parse(answer.record).expect("a record");
                let place = (record.position.index, record.position.timestamp.time);
                assert_eq!((record.request, place, record.applied), (5, (3, 3), 70));
                answers += 1;
            }
        });
        assert_eq!(answers, 1);
    }

    #[test]
    fn a_version_that_the_program_does_not_know_ends_it() {
        let (groups, clients) = (1, Limits::DEFAULT.clients);
        for mut machine in counts() {
            machine.deliver(&Delivered {
                id: MessageId { client: ClientId(clients + groups), sequence: 1 },
                timestamp: Timestamp { time: 1, group: 0 },
                number: 1,
                ballot: Ballot::default(),
                origin: Incarnation::FIRST,
                groups: DestinationGroups::from_words(&[0]),
                enveloped: false,
                payload: &[],
            });
            rounds(&mut machine, |machine| machine.progress().failure().is_some());
            let failure = machine.progress().failure().expect("the machine has failed").to_string();
            assert!(
                failure.contains("applies version 2 of the state machine, and this program has version 1"),
                "{failure}"
            );
            assert_eq!((machine.progress().version(), machine.progress().commands()), (2, 0));
        }
    }

    #[test]
    fn a_look_from_before_the_thread_began_is_answered() {
        let members = ["a", "b", "c"].map(|name| (name, format!("{name}:1")));
        let cluster = Cluster::builder("c").group("g", members).build().expect("a sound cluster");
        let group = cluster.groups().next().expect("the cluster has a group");
        let applier = Applier::new(Count(3), ("a", &logged("a")), group, cluster.runtime())
            .expect("the initial state can be written");
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        applier.looks().put(Box::new(move |machine| {
            let _ = tell.send(machine.map(|machine| machine.0));
        }));
        let machine = Machine::start(applier, ApplyThread::Own, Bounds::default(), WaitMode::BLOCK, Sleeper::default())
            .expect("the machine starts");
        assert_eq!(told.recv_timeout(std::time::Duration::from_secs(20)), Ok(Ok(3)));
        drop(machine);
    }
}
