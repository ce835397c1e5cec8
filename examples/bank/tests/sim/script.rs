//! The script of a simulated client, and its checks of the replies.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use stentor::Group;
use stentor::sim::{Fate, Next, Seen, SimRandom, Turn};
use stentor_bank::{Account, Command, Cut, Order, Outcome, Query, Transfer, TransferId, Verdict};

/// Counts over the scripts of all seeds.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) cuts: Cell<u64>,
    /// Cuts at which an amount was in flight.
    pub(crate) in_flight: Cell<u64>,
    pub(crate) done: Cell<u64>,
    pub(crate) refused: Cell<u64>,
    /// Transfers that were closed already when the client settled them.
    pub(crate) closed: Cell<u64>,
}

fn count(cell: &Cell<u64>) {
    cell.set(cell.get() + 1);
}

/// A client that opens two accounts. Then it transfers, deposits, withdraws, reads sums, and cancels open transfers of
/// any client.
struct Client {
    found: Rc<Found>,
    /// The first commands of the client, in reverse order.
    first: Vec<(Account, Command)>,
    number: u64,
    transfer: Option<Transfer>,
    /// `true` if the call that is under way belongs to the transfer.
    is_transfer: bool,
    judged: usize,
}

/// Returns the script of a client.
pub(crate) fn script(client: usize, found: Rc<Found>) -> impl FnMut(&mut Turn<'_>) -> Next {
    let own = [client as u64, client as u64 + 3].map(Account);
    let first =
        own.into_iter().flat_map(|own| [(own, Command::Deposit(own, 100)), (own, Command::Open(own))]).collect();
    let mut client = Client { found, first, number: 0, transfer: None, is_transfer: false, judged: 0 };
    move |turn| client.next(turn).unwrap_or_else(Next::fail)
}

fn bytes(what: impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(&what).expect("the command is serializable")
}

impl Client {
    fn next(&mut self, turn: &mut Turn<'_>) -> Result<Next, String> {
        let groups: Vec<Group> = turn.groups().to_vec();
        let mut taken_back = None;
        for call in &turn.seen()[std::mem::replace(&mut self.judged, turn.seen().len())..] {
            taken_back = self.judge(call)?.or(taken_back);
        }
        if let Some((id, order)) = taken_back {
            let homes = [order.from, order.to].map(|account| account.home(&groups).expect("the cluster has groups"));
            return Ok(Next::call(homes, bytes(Command::Cancel(id))));
        }
        if let Some((account, command)) = self.first.pop() {
            return Ok(Next::call(account.home(&groups).expect("the cluster has groups"), bytes(command)));
        }
        // A pause or a read delays the second command of a transfer, so that other clients can read or cancel the
        // transfer before it.
        match turn.random().below(10) {
            0 => return Ok(Next::Wait(Duration::from_micros(50))),
            1..=2 => return Ok(Next::read(&groups[..], bytes(Query::Totals))),
            _ => {}
        }
        if let Some((to, command)) = self.transfer.and_then(|transfer| transfer.next(&groups)) {
            self.is_transfer = true;
            return Ok(Next::call(to, bytes(command)));
        }
        let account = random_account(turn.random());
        let home = account.home(&groups).expect("the cluster has groups");
        Ok(match turn.random().below(12) {
            0 => Next::call(home, bytes(Command::Deposit(account, 30))),
            1 => Next::call(home, bytes(Command::Withdraw(account, 20))),
            2 => Next::read(home, bytes(Query::Legs(None))),
            _ => {
                let order =
                    Order { from: account, to: random_account(turn.random()), amount: turn.random().below(120) };
                self.number += 1;
                let transfer = self.transfer.insert(Transfer::new(order, self.number));
                let (to, command) = transfer.next(&groups).ok_or("a transfer that begins has a command")?;
                self.is_transfer = true;
                Next::call(to, bytes(command))
            }
        })
    }

    /// Checks a call that has ended. Returns a transfer that this client has to cancel, if the reply lists one.
    fn judge(&mut self, call: &Seen) -> Result<Option<(TransferId, Order)>, String> {
        let is_transfer = std::mem::take(&mut self.is_transfer);
        match call.fate() {
            Fate::Applied { position, replies } => {
                let replies = replies.iter().map(|(group, reply)| (*group, reply.as_deref().unwrap_or(b"too long")));
                if is_transfer {
                    return self.take(call, replies.map(|(_, reply)| reply)).map(|()| None);
                }
                if call.bytes() == bytes(Query::Totals) {
                    let cut = Cut::of(*position, replies).map_err(|error| error.to_string())?;
                    cut.check().map_err(|wrong| wrong.to_string())?;
                    count(&self.found.cuts);
                    if cut.held() > 0 {
                        count(&self.found.in_flight);
                    }
                    return Ok(None);
                }
                match call.reply().map(serde_json::from_slice) {
                    Some(Ok(Verdict::Legs(legs))) => Ok(legs.first().map(|(id, leg)| (*id, leg.order))),
                    Some(Ok(_)) => Ok(None),
                    other => Err(format!("{other:?}")),
                }
            }
            // It is unknown whether the transfer began. If it did and has legs, another client may cancel it.
            Fate::Unknown if is_transfer && self.transfer.is_some_and(|transfer| !transfer.may_be_sent_again()) => {
                self.transfer = None;
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    fn take<'a>(&mut self, call: &Seen, replies: impl Iterator<Item = &'a [u8]>) -> Result<(), String> {
        let transfer = self.transfer.as_mut().ok_or("a reply arrived without a transfer")?;
        transfer.answered(call.session(), replies).map_err(|error| error.to_string())?;
        match transfer.outcome() {
            None => return Ok(()),
            Some(Outcome::Done) => count(&self.found.done),
            Some(Outcome::Refused(_)) => count(&self.found.refused),
            Some(Outcome::ClosedByAnother) => count(&self.found.closed),
        }
        self.transfer = None;
        Ok(())
    }
}

fn random_account(random: &mut SimRandom) -> Account {
    Account(random.below(6))
}
