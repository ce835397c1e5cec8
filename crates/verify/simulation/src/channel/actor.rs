//! The processes of a channel run.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use stentor_channel::{Cause, Endpoint, Handle, Notice};
use stentor_fabric::{Fabric, ProcessId, Wake};
use stentor_fabric_sim::{Actor, World};

use super::history::History;
use super::watch::{EndLife, Ledger, Watched};
use crate::chance::Chance;

/// Time after which an idle process polls again.
const IDLE: Duration = Duration::from_micros(20);

/// The state that all processes of a run share.
pub(crate) struct Shared {
    pub(crate) world: World,
    pub(crate) history: RefCell<History>,
    pub(crate) ledger: Rc<RefCell<Ledger>>,
}

/// One end of a connection, as its application sees it.
struct Talk {
    peer: ProcessId,
    number: u32,
    life: u32,
    handle: Option<Handle>,
    left: u64,
    /// The message that is being handed over to the endpoint.
    writing: Option<Vec<u8>>,
    reading: Vec<u8>,
    read: u64,
    finished: bool,
    opened: bool,
    failed: bool,
    not_before_ns: u64,
}

impl Talk {
    fn new(peer: ProcessId, number: u32) -> Self {
        Talk {
            peer,
            number,
            life: 0,
            handle: None,
            left: 0,
            writing: None,
            reading: Vec::new(),
            read: 0,
            finished: false,
            opened: false,
            failed: false,
            not_before_ns: 0,
        }
    }
}

/// A process of a channel run.
pub(crate) struct Process {
    me: ProcessId,
    pub(crate) endpoint: Endpoint<Watched>,
    shared: Rc<Shared>,
    chance: Chance,
    talks: Vec<Talk>,
    task: Task,
    pub(crate) counts: Counts,
}

/// Counts of a process's actions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) writes: u64,
    pub(crate) reads: u64,
    pub(crate) failed: u64,
    pub(crate) closed: u64,
    pub(crate) given_up: u64,
}

/// The task of a process.
pub(crate) struct Task {
    pub(crate) peers: Vec<ProcessId>,
    pub(crate) connections: u16,
    pub(crate) messages: u64,
    pub(crate) longest: u64,
    pub(crate) rounds: u32,
    pub(crate) pause_ns: u64,
    pub(crate) gives_up_ns: Option<u64>,
}

impl Process {
    pub(crate) fn new(
        me: ProcessId,
        endpoint: Endpoint<Watched>,
        shared: Rc<Shared>,
        chance: Chance,
        task: Task,
    ) -> Self {
        let numbers = 0..u32::from(task.connections);
        let talks = task.peers.iter().flat_map(|peer| numbers.clone().map(|number| Talk::new(*peer, number))).collect();
        Process { me, endpoint, shared, chance, talks, task, counts: Counts::default() }
    }

    /// Returns whether every connection is closed for good.
    pub(crate) fn is_done(&self) -> bool {
        self.talks.iter().all(|talk| talk.handle.is_none() && (talk.life == self.task.rounds || talk.failed))
    }

    fn end(&self, talk: usize) -> EndLife {
        let talk = &self.talks[talk];
        (self.me, talk.peer, talk.number, talk.life)
    }

    /// Opens the next life of a connection. Returns whether there was one to open.
    fn open(&mut self, place: usize) -> bool {
        let talk = &mut self.talks[place];
        if talk.handle.is_some() || talk.failed || talk.life == self.task.rounds {
            return false;
        }
        let (me, peer, number, life) = (self.me, talk.peer, talk.number, talk.life + 1);
        self.shared.ledger.borrow_mut().opened(me, peer, number, life);
        let handle = self.endpoint.open(peer, number).expect("its number and an area are free");
        let (left, not_before_ns) = (self.task.messages, talk.not_before_ns);
        *talk = Talk { life, handle: Some(handle), left, not_before_ns, ..Talk::new(peer, number) };
        true
    }

    fn write(&mut self, place: usize, now_ns: u64, t: u64) -> bool {
        let end = self.end(place);
        let talk = &mut self.talks[place];
        let Some(handle) = talk.handle else { return false };
        let mut worked = false;
        loop {
            if let Some(message) = &talk.writing {
                let before = self.endpoint.left(handle);
                let all = self.endpoint.hand_over(handle, message).expect("the message that was begun");
                worked |= self.endpoint.left(handle) != before;
                if !all {
                    return worked;
                }
                talk.writing = None;
            }
            if talk.left == 0 || now_ns < talk.not_before_ns {
                break;
            }
            let bytes = self.chance.between(0, self.task.longest);
            let Ok(index) = self.endpoint.begin(handle, bytes) else { break };
            let mut message = vec![0; bytes as usize];
            self.chance.fill(&mut message);
            self.shared.history.borrow_mut().send(t, end, index, &message);
            talk.left -= 1;
            talk.not_before_ns = now_ns + self.chance.between(0, self.task.pause_ns);
            talk.writing = Some(message);
            self.counts.writes += 1;
            worked = true;
        }
        if talk.left == 0 && !talk.finished {
            talk.finished = self.endpoint.finish(handle).is_ok();
            worked |= talk.finished;
        }
        worked
    }

    fn read(&mut self, place: usize, t: u64) -> bool {
        let end = self.end(place);
        let talk = &mut self.talks[place];
        let Some(handle) = talk.handle else { return false };
        let mut worked = false;
        while let Some(incoming) = self.endpoint.incoming(handle) {
            if !self.endpoint.read(handle, &mut talk.reading) {
                break;
            }
            self.shared.history.borrow_mut().recv(t, end, incoming.number, &talk.reading);
            talk.reading.clear();
            talk.read += 1;
            self.counts.reads += 1;
            worked = true;
        }
        worked
    }

    /// Records errors that the fabric reported. They are recorded before the endpoint's own reports.
    fn tell_faults(&self, t: u64) {
        let mut ledger = self.shared.ledger.borrow_mut();
        let new = ledger.faults[ledger.told..].to_vec();
        ledger.told = ledger.faults.len();
        for (end, status) in new {
            self.shared.history.borrow_mut().fault(t, end, status);
        }
    }

    fn listen(&mut self, t: u64) -> bool {
        let mut worked = false;
        while let Some((handle, notice)) = self.endpoint.next_notice() {
            worked = true;
            let Some(place) = self.talks.iter().position(|talk| talk.handle == Some(handle)) else { continue };
            let end = self.end(place);
            let mut history = self.shared.history.borrow_mut();
            match notice {
                Notice::Opened => self.talks[place].opened = true,
                Notice::Written(index) => history.sent(t, end, index),
                Notice::Failed(error) => {
                    if error.cause == Cause::Aborted {
                        history.given_up(t, end);
                        self.counts.given_up += 1;
                    }
                    if let Some(status) = self.shared.ledger.borrow_mut().broken.remove(&end) {
                        history.fault(t, end, status);
                    }
                    history.failed(t, end, &error);
                    self.talks[place].failed = true;
                    self.counts.failed += 1;
                }
                Notice::Closed => {
                    let mut ledger = self.shared.ledger.borrow_mut();
                    history.closed(t, end, ledger.lent(end));
                    ledger.closed(end);
                    self.talks[place].handle = None;
                    self.counts.closed += u64::from(!self.talks[place].failed);
                }
            }
        }
        worked
    }

    fn give_up(&mut self, t: u64) {
        if self.task.gives_up_ns.is_none_or(|at| t < at) {
            return;
        }
        for place in 0..self.talks.len() {
            let talk = &self.talks[place];
            // An end that is aborted before it was open reports nothing.
            let Some(handle) = talk.handle.filter(|_| talk.opened && !talk.failed) else { continue };
            self.endpoint.abort(handle);
        }
    }
}

impl Actor for Process {
    fn step(&mut self, now_ns: u64) -> bool {
        let t = self.shared.world.now_ns();
        let mut worked = self.endpoint.housekeep();
        worked |= self.endpoint.step();
        self.tell_faults(t);
        self.give_up(t);
        worked |= self.listen(t);
        for place in 0..self.talks.len() {
            worked |= self.open(place);
            worked |= self.write(place, now_ns, t);
            worked |= self.read(place, t);
        }
        self.tell_faults(t);
        worked |= self.listen(t);
        worked | (self.endpoint.fabric_mut().wait(IDLE) == Ok(Wake::Notified))
    }
}
