//! Asks one member, again and again, how it stands, and passes on what is wanted of it. A thread of its own for each: a
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

/// Between two questions.
const LOOK: Duration = Duration::from_millis(50);

/// What was said longer ago tells of another time.
const FRESH: Duration = Duration::from_secs(1);

/// What is known of a member, and what is wanted.
#[derive(Debug, Default)]
struct Sheet {
    /// What it said last, the number of the question, and when.
    said: Option<(u64, Standing, Instant)>,
    /// Questions so far.
    asked: u64,
    /// What its network is to do; `None`: nothing was ever wanted of this process.
    wanted: Option<Question>,
    /// Whether it does.
    done: bool,
    /// Leadership that it gave to others, and that it did not give, with the last reason.
    moved: u64,
    refused: Option<(u64, String)>,
}

/// A member's desk.
#[derive(Debug)]
pub(super) struct Desk {
    sheet: Arc<Mutex<Sheet>>,
    orders: Sender<Question>,
}

fn lock(sheet: &Mutex<Sheet>) -> MutexGuard<'_, Sheet> {
    sheet.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a member is asked.
#[derive(Clone, Debug)]
pub(super) struct Where {
    pub(super) sockets: PathBuf,
    pub(super) meeting: String,
    pub(super) process: ProcessId,
}

impl Where {
    /// Asks once.
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

    /// What the process with this pid said, if it was asked after `after` questions.
    pub(super) fn standing(&self, pid: u32, after: u64) -> Option<Standing> {
        let sheet = lock(&self.sheet);
        let (_, standing, _) = sheet.said.as_ref().filter(|(asked, said, _)| *asked > after && said.pid == pid)?;
        Some(standing.clone())
    }

    /// What the process with this pid said a moment ago.
    pub(super) fn fresh(&self, pid: u32) -> Option<Standing> {
        let sheet = lock(&self.sheet);
        let fresh = |at: &Instant| at.elapsed() < FRESH;
        let (_, standing, _) = sheet.said.as_ref().filter(|(_, said, at)| fresh(at) && said.pid == pid)?;
        Some(standing.clone())
    }

    /// Questions so far: an answer to a later one is news.
    pub(super) fn asked(&self) -> u64 {
        lock(&self.sheet).asked
    }

    /// Another process is in the place.
    pub(super) fn renew(&self) {
        let mut sheet = lock(&self.sheet);
        (sheet.said, sheet.wanted, sheet.done) = (None, None, false);
    }

    /// Wants the network to be so from now on.
    pub(super) fn want(&self, faults: Question) {
        let mut sheet = lock(&self.sheet);
        (sheet.wanted, sheet.done) = (Some(faults), false);
    }

    /// Whether the network is as it is wanted.
    pub(super) fn is_done(&self) -> bool {
        let sheet = lock(&self.sheet);
        sheet.wanted.is_none() || sheet.done
    }

    /// Asks this leader to let another member lead.
    pub(super) fn hand_over(&self, to: &str) {
        // The thread lives as long as this.
        let _ = self.orders.send(Question::Move { to: to.to_owned() });
    }

    /// Leadership that was handed over, that was not, and the last reason.
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

/// Sees to it that the network is as it is wanted. What fails is tried again.
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
