//! Notifications: a board that notifies its watchers of every change.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::task::{Context as Task, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use stentor::{
    ApplyThread, Client, Cluster, Context, Frozen, Group, NodeHandle, Notification, Notifications, Reply, SessionId,
    StateMachine,
};
use stentor_testutil::TempDir;

use crate::log::until;

/// Time limit: longer than any step takes.
const LONG: Duration = Duration::from_secs(20);
/// Notification that a watcher's session has ended.
const GONE: u64 = u64::MAX;

/// The number of changes, and the watching sessions.
#[derive(Clone, Default)]
struct Board {
    changes: u64,
    watchers: BTreeSet<SessionId>,
}

impl Board {
    fn tell(&self, at: &Context<'_>, bytes: &[u8]) {
        self.watchers.iter().for_each(|watcher| at.notify(*watcher, bytes));
    }
}

impl StateMachine for Board {
    type Frozen = Board;

    fn apply(&mut self, at: &Context<'_>, command: &[u8], reply: &mut Reply) {
        if command == b"watch" {
            self.watchers.insert(at.session().expect("a client with a session"));
        } else {
            self.changes += 1;
            let longer = match command {
                b"long" => vec![0; 1 << 20],
                b"wide" => vec![0; 500],
                _ => Vec::new(),
            };
            self.tell(at, &[&self.changes.to_le_bytes()[..], &longer].concat());
        }
        reply.extend(&self.changes.to_le_bytes());
    }

    fn session_ended(&mut self, at: &Context<'_>, session: SessionId) {
        if self.watchers.remove(&session) {
            self.tell(at, &GONE.to_le_bytes());
        }
    }

    fn freeze(&self) -> Board {
        self.clone()
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes)?;
        let (changes, watchers) = bytes.split_first_chunk().expect("a number");
        let watcher = |id: &[u8]| SessionId::from_bytes(id.try_into().expect("sixteen bytes"));
        *self = Board { changes: u64::from_le_bytes(*changes), watchers: watchers.chunks(16).map(watcher).collect() };
        Ok(())
    }
}

impl Frozen for Board {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.changes.to_le_bytes())?;
        self.watchers.iter().try_for_each(|watcher| out.write_all(&watcher.to_bytes()))
    }
}

/// A group with a given number of members.
struct Running {
    cluster: Cluster,
    nodes: Vec<NodeHandle<Board>>,
    group: Group,
    _directory: TempDir,
}

impl Running {
    fn new(name: &str, members: usize, on: ApplyThread) -> Running {
        let directory = TempDir::new();
        let named = (1..=members).map(|n| (format!("m{n}"), format!("127.0.0.{n}:7101")));
        let silence = Duration::from_millis(400)..=Duration::from_millis(800);
        let builder = Cluster::builder(name).directory(&directory).election(silence).group("g1", named);
        let cluster = builder.build().expect("a valid cluster");
        let start = |n| cluster.node(&format!("m{n}"), Board::default()).apply_on(on).spawn().expect("the node starts");
        let nodes = (1..=members).map(start).collect();
        let group = cluster.group("g1").expect("the group is in the configuration");
        Running { cluster, nodes, group, _directory: directory }
    }

    fn connect(&self) -> Client {
        self.cluster.client().connect().expect("the client connects")
    }

    fn watcher(&self) -> (Client, Notifications) {
        let client = self.connect();
        client.call(self.group, b"watch").wait().expect("the command is applied");
        let notifications = client.notifications();
        (client, notifications)
    }

    fn change(&self, client: &Client) -> stentor::Answer {
        client.call(self.group, b"change").wait().expect("the command is applied")
    }
}

/// A receiver's knowledge of the changes.
#[derive(Default)]
struct Known {
    last: u64,
    received: u64,
    missed: u64,
}

impl Known {
    /// Records a notification. Each change is received after the previous one, or reported as missed in its place.
    fn take(&mut self, notification: &Notification) {
        match notification {
            Notification::Sent { bytes, .. } => {
                let number = u64::from_le_bytes(*bytes.first_chunk().expect("a number"));
                assert_eq!(number, self.last + 1);
                (self.last, self.received) = (number, self.received + 1);
            }
            Notification::Missed { count, .. } => {
                assert!(*count > 0);
                (self.last, self.missed) = (self.last + count, self.missed + count);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn watchers_receive_every_change_in_order_with_its_position() {
    for on in [ApplyThread::Own, ApplyThread::Protocol] {
        let running = Running::new(&format!("notes-{on:?}").to_lowercase(), 1, on);
        let (_one, mut one) = running.watcher();
        let (_two, mut two) = running.watcher();
        let writer = running.connect();
        for n in 1..=100_u64 {
            let position = running.change(&writer).position();
            let expected = Notification::Sent { group: running.group, position, bytes: n.to_le_bytes().to_vec() };
            for watcher in [&mut one, &mut two] {
                assert_eq!(watcher.recv_timeout(LONG).as_ref(), Some(&expected));
            }
        }
        assert_eq!((one.try_recv(), two.recv_timeout(Duration::from_millis(20))), (None, None));
        assert!(!one.is_ended());
    }
}

/// A watcher receives the reply to its own command before the notification of that change.
#[test]
fn a_watcher_receives_its_own_changes() {
    let running = Running::new("notes-own", 1, ApplyThread::Own);
    let (client, mut notifications) = running.watcher();
    let position = running.change(&client).position();
    let told = notifications.recv_timeout(LONG);
    assert!(matches!(told, Some(Notification::Sent { position: at, .. }) if at == position), "{told:?}");
}

#[test]
fn notifications_lost_with_a_leader_are_reported() {
    let mut running = Running::new("notes-leader", 3, ApplyThread::Own);
    let (_client, mut notifications) = running.watcher();
    let (writer, mut known) = (running.connect(), Known::default());
    let mut changes = 0;
    for round in 0..3 {
        let calls: Vec<_> = (0..50).map(|_| writer.call(running.group, b"change")).collect();
        let leader =
            until("a leader", || running.nodes.iter().position(|node| node.status().expect("the node runs").leads));
        if round < 2 {
            // The leader stops while calls are in flight.
            running.nodes.remove(leader).stop().expect("the node ran until it was stopped");
            let name = format!("m{}", leader + 1);
            let again = running.cluster.node(&name, Board::default()).spawn().expect("the node starts");
            running.nodes.insert(leader, again);
        }
        changes += calls.len() as u64;
        calls.into_iter().for_each(|call| drop(call.wait_for(LONG).expect("the command is applied")));
    }
    while known.last < changes {
        known.take(&notifications.recv_timeout(LONG).expect("each change is reported"));
    }
    assert_eq!((known.received + known.missed, notifications.try_recv()), (changes, None));
    assert!(known.received > 0, "{} of {changes} were lost", known.missed);
}

#[test]
fn slow_receiver_learns_how_many_were_lost() {
    let running = Running::new("notes-slow", 1, ApplyThread::Own);
    let (_client, mut notifications) = running.watcher();
    let (writer, mut known) = (running.connect(), Known::default());
    let changes = 3000;
    let calls: Vec<_> = (0..changes)
        .map(|_| {
            until("room", || {
                let call = writer.call(running.group, b"change");
                (writer.room() > 0).then_some(call)
            })
        })
        .collect();
    calls.into_iter().for_each(|call| drop(call.wait_for(LONG).expect("the command is applied")));
    running.change(&writer);
    while known.last < changes + 1 {
        known.take(&notifications.recv_timeout(LONG).expect("each change is reported"));
    }
    assert!(known.received >= 1024 && known.missed > 0, "{} of {}", known.received, known.last);
}

#[test]
fn too_long_notification_is_reported_as_missed() {
    let running = Running::new("notes-long", 1, ApplyThread::Own);
    let (client, mut notifications) = running.watcher();
    client.call(running.group, b"long").wait().expect("the command is applied");
    assert_eq!(notifications.recv_timeout(LONG), Some(Notification::Missed { group: running.group, count: 1 }));
    running.change(&client);
    assert!(matches!(notifications.recv_timeout(LONG), Some(Notification::Sent { .. })));
}

#[test]
fn resumed_session_receives_later_notifications() {
    let running = Running::new("notes-taken-up", 1, ApplyThread::Own);
    let (client, mut before) = running.watcher();
    let writer = running.connect();
    running.change(&writer);
    let session = client.leave().expect("its session lives on");
    assert!(before.try_recv().is_some() && !before.is_ended());
    assert_eq!((before.recv_timeout(LONG), before.is_ended()), (None, true), "at once");
    running.change(&writer);
    let client = running.cluster.client().session(session).connect().expect("the client resumes the session");
    let mut notifications = client.notifications();
    running.change(&writer);
    let told = notifications.recv_timeout(LONG);
    assert!(matches!(&told, Some(Notification::Sent { bytes, .. }) if *bytes == 3_u64.to_le_bytes()), "{told:?}");
}

#[test]
fn watchers_are_notified_of_an_ended_session() {
    let running = Running::new("notes-ended", 1, ApplyThread::Own);
    let (_client, mut notifications) = running.watcher();
    let (ends, _) = running.watcher();
    ends.close().expect("its session ends");
    let told = notifications.recv_timeout(LONG);
    assert!(matches!(&told, Some(Notification::Sent { bytes, .. }) if *bytes == GONE.to_le_bytes()), "{told:?}");
}

#[test]
fn latest_receiver_gets_waiting_notifications() {
    let running = Running::new("notes-receivers", 1, ApplyThread::Own);
    let (client, mut first) = running.watcher();
    running.change(&client);
    let waits = std::thread::spawn(move || {
        let one = first.recv_timeout(LONG);
        (one.is_some(), first.recv_timeout(LONG), first.is_ended())
    });
    std::thread::sleep(Duration::from_millis(100));
    let mut second = client.notifications();
    assert_eq!(waits.join().expect("the receiving thread does not panic"), (true, None, true));
    running.change(&client);
    assert!(second.recv_timeout(LONG).is_some());
    drop(client);
    assert_eq!((second.recv_timeout(LONG), second.is_ended()), (None, true), "the last clone has gone");
}

#[test]
fn local_client_receives_notifications_as_it_turns() {
    let running = Running::new("notes-local", 1, ApplyThread::Own);
    let mut client = running.cluster.client().connect_local().expect("the client connects");
    let mut answered = |command: &[u8]| {
        let request = client.submit(running.group, command).expect("there is room");
        until("an answer", || {
            let mut position = None;
            let _ = client
                .turn(|of, outcome| match outcome {
                    stentor::Outcome::Applied(replies) if of == request => position = Some(replies.position()),
                    other => panic!("{other:?}"),
                })
                .expect("the client still runs");
            position
        })
    };
    answered(b"watch");
    let position = answered(b"change");
    let told = until("a notification", || {
        let _ = client.turn(|_, outcome| panic!("{outcome:?}")).expect("the client still runs");
        client.take_notification()
    });
    let bytes = 1_u64.to_le_bytes().to_vec();
    assert_eq!(told, Notification::Sent { group: running.group, position, bytes });
    assert_eq!(client.take_notification(), None);
}

/// The client reads nothing from its ring, until a member has no room for more notifications.
#[test]
fn unturned_client_learns_its_losses_when_turned() {
    let running = Running::new("notes-stands", 1, ApplyThread::Own);
    let mut client = running.cluster.client().connect_local().expect("the client connects");
    client.submit(running.group, b"watch").expect("there is room");
    until("an answer", || {
        let mut answered = None;
        let _ = client.turn(|_, _| answered = Some(())).expect("the client still runs");
        answered
    });
    let (writer, mut known) = (running.connect(), Known::default());
    // These notifications exceed the client's ring, the member's queue for the client, and the client's queue.
    let (rounds, calls) = (40, 500);
    for _ in 0..rounds {
        let calls: Vec<_> = (0..calls).map(|_| writer.call(running.group, b"wide")).collect();
        calls.into_iter().for_each(|call| drop(call.wait_for(LONG).expect("the command is applied")));
    }
    until("all of them", || {
        let _ = client.turn(|_, outcome| panic!("{outcome:?}")).expect("the client still runs");
        while let Some(notification) = client.take_notification() {
            known.take(&notification);
        }
        (known.last == rounds * calls).then_some(())
    });
    assert!(known.received > 0 && known.missed > 0, "{} of {}", known.received, known.last);
}

struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn task_is_woken_and_a_dropped_future_loses_nothing() {
    let running = Running::new("notes-task", 1, ApplyThread::Own);
    let (client, mut notifications) = running.watcher();
    let waker = Waker::from(Arc::new(Unparks(std::thread::current())));
    let mut task = Task::from_waker(&waker);
    assert!(Box::pin(notifications.recv()).as_mut().poll(&mut task).is_pending());
    for n in 1..=20_u64 {
        running.change(&client);
        let mut next = Box::pin(notifications.recv());
        let told = loop {
            match next.as_mut().poll(&mut task) {
                Poll::Ready(told) => break told,
                Poll::Pending => std::thread::park_timeout(LONG),
            }
        };
        assert!(matches!(&told, Some(Notification::Sent { bytes, .. }) if *bytes == n.to_le_bytes()), "{told:?}");
    }
    let mut last = Box::pin(notifications.recv());
    assert!(last.as_mut().poll(&mut task).is_pending());
    client.close().expect("its session ends");
    assert_eq!(last.as_mut().poll(&mut task), Poll::Ready(None));
}
