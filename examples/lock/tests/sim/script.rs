//! The script of a simulated client.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use stentor::Notification;
use stentor::sim::{Fate, Next, Seen, Turn};
use stentor_lock::{Command, End, Query, Verdict};

use crate::judge::{Found, Judge};

/// The locks of all clients.
const NAMES: [&str; 2] = ["door", "gate"];

struct Client {
    judge: Rc<RefCell<Judge>>,
    found: Rc<RefCell<Found>>,
    /// The last token that the client was granted, by lock. It may not be valid any more.
    tokens: BTreeMap<&'static str, u64>,
    judged: usize,
    notified: usize,
}

/// Returns the script of a client.
pub(crate) fn script(judge: Rc<RefCell<Judge>>, found: Rc<RefCell<Found>>) -> impl FnMut(&mut Turn<'_>) -> Next {
    let mut client = Client { judge, found, tokens: BTreeMap::new(), judged: 0, notified: 0 };
    move |turn| match client.judge(turn) {
        Ok(()) => client.next(turn),
        Err(what) => Next::fail(what),
    }
}

fn bytes(what: impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(&what).expect("the command is serializable")
}

impl Client {
    fn next(&mut self, turn: &mut Turn<'_>) -> Next {
        let group = turn.groups()[0];
        let Some(name) = turn.random().pick(&NAMES).copied() else { return Next::Done };
        let lease = 20_000 + turn.random().below(400_000);
        let own = name.to_owned();
        let command = match (turn.random().below(12), self.tokens.get(name).copied()) {
            (0, _) => return Next::Wait(Duration::from_micros(60)),
            (1, _) => return Next::read(group, bytes(Query::Lock(own))),
            (2, _) => Command::Watch(own),
            (3, _) => Command::Unwatch(own),
            (4..=8, Some(token)) => Command::Renew { name: own, token, lease },
            (9, Some(token)) => Command::Release { name: own, token },
            _ => Command::Acquire { name: own, lease },
        };
        Next::call(group, bytes(command))
    }

    fn judge(&mut self, turn: &Turn<'_>) -> Result<(), String> {
        for call in &turn.seen()[std::mem::replace(&mut self.judged, turn.seen().len())..] {
            self.judge_call(call)?;
        }
        let news = &turn.notifications()[std::mem::replace(&mut self.notified, turn.notifications().len())..];
        for notification in news {
            if let Notification::Sent { bytes, .. } = notification {
                let end: End = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
                self.found.borrow_mut().notified += 1;
                self.judge.borrow_mut().has_ended(&end)?;
            }
        }
        Ok(())
    }

    fn judge_call(&mut self, call: &Seen) -> Result<(), String> {
        let (Fate::Applied { position, .. }, Some(reply)) = (call.fate(), call.reply()) else { return Ok(()) };
        let verdict = serde_json::from_slice(reply).map_err(|error| error.to_string())?;
        let Some(name) = NAMES.iter().find(|name| String::from_utf8_lossy(call.bytes()).contains(**name)) else {
            return Err("the call names no lock".to_owned());
        };
        let (mut judge, mut found) = (self.judge.borrow_mut(), self.found.borrow_mut());
        match verdict {
            Verdict::Granted(held) => {
                let is_new = self.tokens.insert(name, held.token) != Some(held.token);
                *(if is_new { &mut found.grants } else { &mut found.renewals }) += 1;
                if held.holder() != call.session() {
                    return Err(format!(
                        "the lock is granted to {}, but {} asked for it",
                        held.holder(),
                        call.session()
                    ));
                }
                judge.was_held(name, position.index, &held)?;
                judge.was_promised(&held)
            }
            Verdict::Taken(held) => {
                found.taken += 1;
                judge.was_held(name, position.index, &held)
            }
            Verdict::Lock(Some(held)) => judge.was_held(name, position.index, &held),
            Verdict::Lost(Some(end)) => {
                found.ran_out += u64::from(end.cause == stentor_lock::Cause::RanOut);
                self.tokens.remove(name);
                judge.has_ended(&end)
            }
            Verdict::Lost(None) | Verdict::Released => {
                self.tokens.remove(name);
                Ok(())
            }
            Verdict::Lock(None) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }
}
