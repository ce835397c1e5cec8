//! A thread per member that polls the member's status and forwards requests to it. A stopped member answers late; with
//! separate threads, queries to the other members do not wait for its answer.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stentor::operator::{Answer, Question, Standing, ask};
use stentor_fabric::ProcessId;
use stentor_support::Failure;
use stentor_support::live::{lock, no_thread};

/// The time between two queries.
const LOOK: Duration = Duration::from_millis(50);

/// The age up to which an answer describes the present.
const FRESH: Duration = Duration::from_secs(1);

/// The last known status of a member, and the requests to it.
#[derive(Debug, Default)]
struct MemberStatus {
    /// The member's last answer, the number of its query, and the time of arrival.
    said: Option<(u64, Standing, Instant)>,
    /// The number of queries so far.
    asked: u64,
    /// The network faults that the member should have; `None` if none were ever requested of this process.
    wanted: Option<Question>,
    /// `true` if the member has confirmed that it has the network faults in `wanted`.
    done: bool,
    /// Number of hand-overs that the member has begun on request.
    moved: u64,
    /// Number of requests to hand over that failed, with the last reason.
    refused: Option<(u64, String)>,
}

/// The poller of one member.
#[derive(Debug)]
pub(super) struct MemberPoller {
    status: Arc<Mutex<MemberStatus>>,
    orders: Sender<Question>,
}

/// The address at which a member is queried.
#[derive(Clone, Debug)]
pub(super) struct MemberAddress {
    pub(super) sockets: PathBuf,
    pub(super) meeting: String,
    pub(super) process: ProcessId,
}

impl MemberAddress {
    /// Sends one query.
    pub(super) fn ask(&self, question: &Question) -> io::Result<Option<Answer>> {
        let paths = stentor_host::all_beside(&self.sockets, &self.meeting, self.process).map_err(io::Error::other)?;
        ask(&paths, question)
    }
}

impl MemberPoller {
    pub(super) fn open(place: MemberAddress) -> Result<Self, Failure> {
        let status = Arc::new(Mutex::new(MemberStatus::default()));
        let (orders, taken) = channel();
        let shared = Arc::clone(&status);
        let thread =
            std::thread::Builder::new().name("poller".to_owned()).spawn(move || serve(&place, &shared, &taken));
        thread.map_err(|error| no_thread("that asks a member", &error))?;
        Ok(MemberPoller { status, orders })
    }

    /// Returns the last answer if it is of the process `pid` and its query has a number above `after`.
    pub(super) fn standing(&self, pid: u32, after: u64) -> Option<Standing> {
        let status = lock(&self.status);
        let (_, standing, _) = status.said.as_ref().filter(|(asked, said, _)| *asked > after && said.pid == pid)?;
        Some(standing.clone())
    }

    /// Returns the answer of the process `pid` if it is recent.
    pub(super) fn fresh(&self, pid: u32) -> Option<Standing> {
        let status = lock(&self.status);
        let fresh = |at: &Instant| at.elapsed() < FRESH;
        let (_, standing, _) = status.said.as_ref().filter(|(_, said, at)| fresh(at) && said.pid == pid)?;
        Some(standing.clone())
    }

    /// Returns the number of queries sent so far. An answer to a query with a larger number is newer than this call.
    pub(super) fn asked(&self) -> u64 {
        lock(&self.status).asked
    }

    /// Forgets the last answer and the requested network faults, because another process takes the member's place.
    pub(super) fn renew(&self) {
        let mut status = lock(&self.status);
        (status.said, status.wanted, status.done) = (None, None, false);
    }

    /// Requests network faults, which replace the earlier ones.
    pub(super) fn want(&self, faults: Question) {
        let mut status = lock(&self.status);
        (status.wanted, status.done) = (Some(faults), false);
    }

    /// Returns whether the member has the requested network faults.
    pub(super) fn is_done(&self) -> bool {
        let status = lock(&self.status);
        status.wanted.is_none() || status.done
    }

    /// Requests that this leader hand over to another member.
    pub(super) fn hand_over(&self, to: &str) {
        // The send succeeds, because the thread lives as long as the poller.
        let _ = self.orders.send(Question::Move { to: to.to_owned() });
    }

    /// Returns the number of hand-overs that the member has begun, the number of requests that failed, and the last
    /// reason.
    pub(super) fn moves(&self) -> (u64, u64, Option<String>) {
        let status = lock(&self.status);
        let (refused, why) = status.refused.clone().map_or((0, None), |(n, why)| (n, Some(why)));
        (status.moved, refused, why)
    }
}

fn serve(place: &MemberAddress, status: &Mutex<MemberStatus>, orders: &Receiver<Question>) {
    loop {
        match orders.recv_timeout(LOOK) {
            Ok(order) => {
                let answer = place.ask(&order);
                let mut status = lock(status);
                match answer {
                    Ok(Some(Answer::Moving)) => status.moved += 1,
                    other => {
                        let why = match other {
                            Ok(Some(Answer::Refused(why) | Answer::NotYet(why))) => why,
                            Ok(_) => "no process answers".to_owned(),
                            Err(error) => error.to_string(),
                        };
                        let refused = status.refused.take().map_or(0, |(n, _)| n);
                        status.refused = Some((refused + 1, why));
                    }
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                disturb(place, status);
                look(place, status);
            }
        }
    }
}

/// Sends the requested network faults, unless the member has confirmed them. The next call repeats a failed request.
fn disturb(place: &MemberAddress, status: &Mutex<MemberStatus>) {
    let wanted = {
        let status = lock(status);
        status.wanted.clone().filter(|_| !status.done)
    };
    let Some(wanted) = wanted else { return };
    if matches!(place.ask(&wanted), Ok(Some(Answer::Done))) {
        let mut status = lock(status);
        // Another process may run as this member by now, or other faults may be requested.
        if status.wanted.as_ref() == Some(&wanted) {
            status.done = true;
        }
    }
}

fn look(place: &MemberAddress, status: &Mutex<MemberStatus>) {
    let number = {
        let mut status = lock(status);
        status.asked += 1;
        status.asked
    };
    if let Ok(Some(Answer::Standing(standing))) = place.ask(&Question::Show) {
        lock(status).said = Some((number, *standing, Instant::now()));
    }
}
