//! A thread per member that polls the member's status and forwards requests to it. A thread of its own for each: a
//! stopped member answers late, and nobody else waits for it.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stentor::runtime::ShmFabric;
use stentor_fabric::ProcessId;

use super::PLACE;
use crate::failure::Failure;
use crate::live::{Answer, Question, Standing, ask};

/// The time between two queries.
const LOOK: Duration = Duration::from_millis(50);

/// The age up to which an answer describes the present.
const FRESH: Duration = Duration::from_secs(1);

/// The last known status of a member, and the requests to it.
#[derive(Debug, Default)]
struct Sheet {
    /// The member's last answer, the number of its query, and when it came.
    said: Option<(u64, Standing, Instant)>,
    /// The number of queries so far.
    asked: u64,
    /// The network faults that the member should have; `None` if none were ever requested of this process.
    wanted: Option<Question>,
    /// Whether the member has these network faults.
    done: bool,
    /// Hand-overs that succeeded and that failed, with the last reason.
    moved: u64,
    refused: Option<(u64, String)>,
}

/// The poller of one member.
#[derive(Debug)]
pub(super) struct Desk {
    sheet: Arc<Mutex<Sheet>>,
    orders: Sender<Question>,
}

fn lock(sheet: &Mutex<Sheet>) -> MutexGuard<'_, Sheet> {
    sheet.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The address at which a member is queried.
#[derive(Clone, Debug)]
pub(super) struct Where {
    pub(super) sockets: PathBuf,
    pub(super) meeting: String,
    pub(super) process: ProcessId,
}

impl Where {
    /// Sends one query.
    pub(super) fn ask(&self, question: &Question) -> io::Result<Option<Answer>> {
        let paths = ShmFabric::all_beside(&self.sockets, &self.meeting, self.process).map_err(io::Error::other)?;
        ask(&paths, question)
    }
}

impl Desk {
    pub(super) fn open(place: Where) -> Result<Self, Failure> {
        let sheet = Arc::new(Mutex::new(Sheet::default()));
        let (orders, taken) = channel();
        let shared = Arc::clone(&sheet);
        let thread = std::thread::Builder::new().name("desk".to_owned()).spawn(move || serve(&place, &shared, &taken));
        thread.map_err(|error| Failure::run(error, PLACE, "allow more threads"))?;
        Ok(Desk { sheet, orders })
    }

    /// Returns the answer of the process `pid` to a query later than the first `after`.
    pub(super) fn standing(&self, pid: u32, after: u64) -> Option<Standing> {
        let sheet = lock(&self.sheet);
        let (_, standing, _) = sheet.said.as_ref().filter(|(asked, said, _)| *asked > after && said.pid == pid)?;
        Some(standing.clone())
    }

    /// Returns the answer of the process `pid` if it is recent.
    pub(super) fn fresh(&self, pid: u32) -> Option<Standing> {
        let sheet = lock(&self.sheet);
        let fresh = |at: &Instant| at.elapsed() < FRESH;
        let (_, standing, _) = sheet.said.as_ref().filter(|(_, said, at)| fresh(at) && said.pid == pid)?;
        Some(standing.clone())
    }

    /// Returns the number of queries so far; an answer to a later one is new.
    pub(super) fn asked(&self) -> u64 {
        lock(&self.sheet).asked
    }

    /// Clears the status, because another process has taken the member's place.
    pub(super) fn renew(&self) {
        let mut sheet = lock(&self.sheet);
        (sheet.said, sheet.wanted, sheet.done) = (None, None, false);
    }

    /// Requests network faults, which replace the earlier ones.
    pub(super) fn want(&self, faults: Question) {
        let mut sheet = lock(&self.sheet);
        (sheet.wanted, sheet.done) = (Some(faults), false);
    }

    /// Returns whether the member has the requested network faults.
    pub(super) fn is_done(&self) -> bool {
        let sheet = lock(&self.sheet);
        sheet.wanted.is_none() || sheet.done
    }

    /// Requests that this leader hand over to another member.
    pub(super) fn hand_over(&self, to: &str) {
        // The thread lives as long as this.
        let _ = self.orders.send(Question::Move { to: to.to_owned() });
    }

    /// Returns the numbers of hand-overs that succeeded and that failed, and the last reason.
    pub(super) fn moves(&self) -> (u64, u64, Option<String>) {
        let sheet = lock(&self.sheet);
        let (refused, why) = sheet.refused.clone().map_or((0, None), |(n, why)| (n, Some(why)));
        (sheet.moved, refused, why)
    }
}

fn serve(place: &Where, sheet: &Mutex<Sheet>, orders: &Receiver<Question>) {
    loop {
        match orders.recv_timeout(LOOK) {
            Ok(order) => {
                let answer = place.ask(&order);
                let mut sheet = lock(sheet);
                match answer {
                    Ok(Some(Answer::Moving)) => sheet.moved += 1,
                    other => {
                        let why = match other {
                            Ok(Some(Answer::Refused(why) | Answer::NotYet(why))) => why,
                            Ok(_) => "nobody answers".to_owned(),
                            Err(error) => error.to_string(),
                        };
                        let refused = sheet.refused.take().map_or(0, |(n, _)| n);
                        sheet.refused = Some((refused + 1, why));
                    }
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                disturb(place, sheet);
                look(place, sheet);
            }
        }
    }
}

/// Sends the requested network faults until the member confirms them. What fails is tried again.
fn disturb(place: &Where, sheet: &Mutex<Sheet>) {
    let wanted = {
        let sheet = lock(sheet);
        sheet.wanted.clone().filter(|_| !sheet.done)
    };
    let Some(wanted) = wanted else { return };
    if matches!(place.ask(&wanted), Ok(Some(Answer::Done))) {
        let mut sheet = lock(sheet);
        // Another process may be in the place by now, or something else wanted.
        if sheet.wanted.as_ref() == Some(&wanted) {
            sheet.done = true;
        }
    }
}

fn look(place: &Where, sheet: &Mutex<Sheet>) {
    let number = {
        let mut sheet = lock(sheet);
        sheet.asked += 1;
        sheet.asked
    };
    if let Ok(Some(Answer::Standing(standing))) = place.ask(&Question::Show) {
        lock(sheet).said = Some((number, standing, Instant::now()));
    }
}
