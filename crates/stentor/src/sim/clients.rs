//! The clients of a simulated run: their scripts and their calls.

use std::collections::BTreeMap;
use std::time::Duration;

use stentor_multicast::{ClientId, GroupId};
use stentor_session as session;
use stentor_simulation::sessions::{self, Begun, News, Told, Workload};

use super::failure::SimProperty;
use super::random::SimRandom;
use super::script::{Next, Script, Turn};
use super::seen::{Fate, Seen};
use super::wrongs::Wrongs;
use crate::client::Inbox;
use crate::{Consistency, Group, Groups, Notification, Position, SessionId};

/// A call that a client has requested and not begun.
struct Asked {
    how: Option<Consistency>,
    groups: Groups,
    bytes: Vec<u8>,
}

impl Asked {
    fn next(&self) -> sessions::Next {
        match (self.how, self.groups.ids()) {
            (Some(how), [group]) if how != Consistency::Ordered => {
                sessions::Next::Read(*group, how.guarantee(*group, 0))
            }
            (_, groups) => sessions::Next::Call(groups.to_vec()),
        }
    }
}

/// A simulated client.
struct Client {
    script: Box<dyn Script>,
    random: SimRandom,
    seen: Vec<Seen>,
    /// Number of the client's latest known process.
    process: u64,
    /// Notifications since the client's script was last called.
    inbox: Inbox,
    notifications: Vec<Notification>,
    open: usize,
    asked: Option<Asked>,
    is_done: bool,
}

/// A call that has begun.
#[derive(Clone, Debug)]
pub(super) struct SimCall {
    pub(super) client: ClientId,
    pub(super) session: session::SessionId,
    pub(super) generation: u32,
    /// Guarantee of a read; `None` for a command.
    pub(super) how: Option<Consistency>,
    pub(super) groups: Groups,
    pub(super) bytes: Vec<u8>,
    pub(super) submitted: u64,
    /// Time up to which the answer to a read includes the order; 0 if it is not known.
    pub(super) heard: u64,
    /// Time at which the fate of the call became known, and the fate; `None` if it never became known.
    pub(super) ended: Option<(u64, Fate)>,
}

impl SimCall {
    /// Returns the position that the answer to an unordered read names.
    pub(super) fn answered_at(&self) -> Option<Position> {
        let is_outside = self.how.is_some_and(|how| how != Consistency::Ordered);
        match &self.ended {
            Some((_, Fate::Applied { position, .. })) if is_outside => Some(*position),
            _ => None,
        }
    }

    /// Returns the kind of the call in words.
    pub(super) fn kind(&self) -> String {
        match self.how {
            None => "command".to_owned(),
            Some(Consistency::Ordered) => "read".to_owned(),
            Some(Consistency::Leader) => "read at the leader".to_owned(),
            Some(Consistency::After(Position { index, applied_in, .. })) => {
                format!("read after place {index} of group {}", applied_in.0.0)
            }
            Some(Consistency::Local) => "local read".to_owned(),
        }
    }
}

/// The clients of a run.
pub(super) struct Clients {
    clients: Vec<Client>,
    groups: Vec<Group>,
    at_once: usize,
    most_bytes: usize,
    /// All calls, by token.
    pub(super) calls: BTreeMap<u64, SimCall>,
    /// Number of notifications that clients received.
    pub(super) notified: u64,
    /// Number of notifications that were reported to clients as lost.
    pub(super) missed: u64,
    wrongs: Wrongs,
}

impl Client {
    /// Switches to this process. Notifications that waited for an earlier process are lost with it.
    fn begin_process(&mut self, process: u64) {
        if std::mem::replace(&mut self.process, process) != process {
            self.inbox = Inbox::default();
        }
    }

    fn take_notifications(&mut self) {
        while let Some(notification) = self.inbox.pop() {
            self.notifications.push(notification);
        }
    }
}

impl Clients {
    pub(super) fn new(
        seed: u64,
        scripts: Vec<Box<dyn Script>>,
        groups: usize,
        (at_once, most_bytes): (usize, usize),
        wrongs: &Wrongs,
    ) -> Clients {
        let client = |(number, script)| Client {
            script,
            random: SimRandom::of_client(seed, number),
            seen: Vec::new(),
            process: 0,
            inbox: Inbox::default(),
            notifications: Vec::new(),
            open: 0,
            asked: None,
            is_done: false,
        };
        Clients {
            clients: scripts.into_iter().enumerate().map(client).collect(),
            groups: (0..groups as u16).map(|group| Group(GroupId(group))).collect(),
            at_once,
            most_bytes,
            calls: BTreeMap::new(),
            notified: 0,
            missed: 0,
            wrongs: wrongs.clone(),
        }
    }

    /// Returns why a call is invalid, if it is.
    fn refusal(&self, Asked { how, groups, bytes }: &Asked) -> Option<String> {
        if bytes.len() > self.most_bytes {
            let most = self.most_bytes;
            return Some(format!(
                "makes a call of {} bytes, and `command_bytes` is {most}: raise it, or make shorter calls",
                bytes.len()
            ));
        }
        if let Some(how) = how.filter(|how| *how != Consistency::Ordered && groups.ids().len() > 1) {
            let count = groups.ids().len();
            return Some(format!("reads {count} groups with `{how:?}`: only ordered reads may name several groups"));
        }
        let unknown = groups.ids().iter().any(|group| usize::from(group.0) >= self.groups.len());
        (unknown || groups.ids().is_empty())
            .then(|| "calls no group, or a group that the cluster does not have: see `Turn::groups`".to_owned())
    }
}

impl Workload for Clients {
    fn next(&mut self, turn: &mut sessions::Turn<'_>) -> sessions::Next {
        let number = usize::from(turn.client.0);
        let client = &mut self.clients[number];
        if client.is_done {
            return sessions::Next::Done;
        }
        // A process that has died requested the call and did not begin it.
        if let Some(asked) = &client.asked {
            return asked.next();
        }
        if client.open >= self.at_once {
            return sessions::Next::Later;
        }
        client.begin_process(turn.process);
        client.take_notifications();
        let mut now = Turn {
            client: number,
            process: turn.process,
            groups: &self.groups,
            session: SessionId(turn.session),
            time: Duration::from_nanos(turn.now_ns),
            open: client.open,
            seen: &client.seen,
            notifications: &client.notifications,
            random: &mut client.random,
        };
        let script = &mut client.script;
        let next = self.wrongs.run(|| format!("the script of client {number}"), || script.next(&mut now));
        let asked = match next {
            Some(Next::Call(groups, bytes)) => Asked { how: None, groups, bytes },
            Some(Next::Read(groups, bytes, how)) => Asked { how: Some(how), groups, bytes },
            Some(Next::Wait(time)) => return sessions::Next::Wait(time.as_nanos().clamp(1, 1 << 40) as u64),
            ended => {
                client.is_done = true;
                if let Some(Next::Fail(what)) = ended {
                    self.wrongs.note(SimProperty::Script, format!("the script of client {number} reports: {what}"));
                }
                return sessions::Next::Done;
            }
        };
        if let Some(why) = self.refusal(&asked) {
            self.wrongs.note(SimProperty::Script, format!("client {number} {why}"));
            self.clients[number].is_done = true;
            return sessions::Next::Done;
        }
        let next = asked.next();
        self.clients[number].asked = Some(asked);
        next
    }

    fn is_query(&self, client: ClientId, _: u64) -> bool {
        self.clients[usize::from(client.0)].asked.as_ref().is_some_and(|asked| asked.how.is_some())
    }

    fn begun(&mut self, begun: &Begun<'_>) {
        let client = &mut self.clients[usize::from(begun.client.0)];
        let Some(Asked { how, groups, bytes }) = client.asked.take() else { return };
        client.open += 1;
        let call = SimCall {
            client: begun.client,
            session: begun.session,
            generation: begun.generation,
            how,
            groups,
            bytes,
            submitted: begun.stamp,
            heard: 0,
            ended: None,
        };
        self.calls.insert(begun.token, call);
    }

    fn command(&self, token: u64, out: &mut Vec<u8>) {
        out.extend(self.calls.get(&token).map_or(&[][..], |call| &call.bytes));
    }

    fn told(&mut self, token: u64, told: &Told, stamp: u64) {
        let Some(call) = self.calls.get_mut(&token) else { return };
        let mut fate = fate(told);
        if let Fate::Applied { position, .. } = &mut fate {
            position.heard = call.heard;
        }
        call.ended = Some((stamp, fate.clone()));
        let client = &mut self.clients[usize::from(call.client.0)];
        client.open = client.open.saturating_sub(1);
        let (session, groups, bytes) = (SessionId(call.session), call.groups.clone(), call.bytes.clone());
        client.seen.push(Seen { session, how: call.how, groups, bytes, fate });
    }

    fn comes_after(&mut self, token: u64, time: u64) {
        if let Some(call) = self.calls.get_mut(&token) {
            call.heard = time;
        }
    }

    fn notified(&mut self, client: ClientId, process: u64, news: &News) {
        let client = &mut self.clients[usize::from(client.0)];
        client.begin_process(process);
        let inbox = &mut client.inbox;
        let group = Group(news.group);
        inbox.miss(group, news.missed);
        self.missed += news.missed;
        if let Some((position, bytes)) = &news.one {
            let (position, bytes) = (Position::of(news.group, position), bytes.clone());
            inbox.push(Notification::Sent { group, position, bytes });
            self.notified += 1;
        }
    }

    fn news(&mut self) -> Vec<String> {
        self.wrongs.news()
    }
}

fn fate(told: &Told) -> Fate {
    match told {
        Told::Applied(replies) => {
            let Some((group, first, _)) = replies.first() else { return Fate::Unknown };
            let position = Position::of(*group, first);
            let replies = replies.iter().map(|(group, _, bytes)| (Group(*group), bytes.clone())).collect();
            Fate::Applied { position, replies }
        }
        Told::NotApplied => Fate::NotApplied,
        Told::Unknown(_) => Fate::Unknown,
    }
}
