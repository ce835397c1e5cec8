//! The replicated value of one group.

use std::io::{self, Read, Write};
use std::sync::Arc;

use stentor::{Context, Frozen, ReadContext, Reply, StateMachine};

use crate::{Command, Ledger, Query, Refusal, Side, TransferId, Verdict};

/// Upper bound of the encoded size of a leg in an answer, in bytes.
const LEG_BYTES: usize = 300;

/// A [`Ledger`] that [`Command`]s change and that answers [`Query`]s. A frozen copy shares the ledger. While it exists,
/// the next command copies the ledger first.
#[derive(Clone, Debug, Default)]
pub struct Bank(Arc<Ledger>);

impl Bank {
    /// Returns the accounts and the legs of this group.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.0
    }

    fn carry_out(&mut self, at: &Context<'_>, command: &[u8]) -> Result<Verdict, Refusal> {
        let command = serde_json::from_slice(command).map_err(|_| Refusal::NotUnderstood)?;
        let ledger = Arc::make_mut(&mut self.0);
        let closed = |found, verdict| if found { verdict } else { Verdict::Closed };
        Ok(match command {
            Command::Open(account) => Verdict::Balance(ledger.open(account)?),
            Command::Deposit(account, amount) => Verdict::Balance(ledger.deposit(account, amount)?),
            Command::Withdraw(account, amount) => Verdict::Balance(ledger.withdraw(account, amount)?),
            Command::Pay(order) => Verdict::Balance(ledger.pay(order)?),
            Command::Reserve(number, order) => {
                let session = at.session().ok_or(Refusal::NotUnderstood)?;
                match ledger.reserve(TransferId::new(session, number, &order), number, order, at.time())? {
                    Side::Held => Verdict::Held,
                    Side::Expected => Verdict::Expected,
                    Side::Refused(why) => Verdict::Refused(why),
                }
            }
            Command::Settle(id) => closed(ledger.settle(id), Verdict::Settled),
            Command::Cancel(id) => closed(ledger.cancel(id), Verdict::Cancelled),
        })
    }

    fn answer(&self, query: &[u8], room: usize) -> Result<Verdict, Refusal> {
        Ok(match serde_json::from_slice(query).map_err(|_| Refusal::NotUnderstood)? {
            Query::Totals => Verdict::Totals(self.0.totals()),
            Query::Balance(account) => Verdict::Balance(self.0.balance(account).ok_or(Refusal::NoAccount(account))?),
            Query::Leg(id) => Verdict::Leg(self.0.leg(id)),
            Query::Legs(behind) => Verdict::Legs(self.0.legs_behind(behind).take(room / LEG_BYTES).collect()),
        })
    }
}

impl From<Ledger> for Bank {
    fn from(ledger: Ledger) -> Bank {
        Bank(Arc::new(ledger))
    }
}

/// Writes a verdict. If the reply has no room for it, the client receives `CallError::ReplyTooLong`.
fn write(verdict: Result<Verdict, Refusal>, reply: &mut Reply) {
    // The encoding of numbers and names cannot fail.
    if let Ok(bytes) = serde_json::to_vec(&verdict.unwrap_or_else(Verdict::Refused)) {
        reply.extend(&bytes);
    }
}

impl StateMachine for Bank {
    type Frozen = Bank;

    fn apply(&mut self, at: &Context<'_>, command: &[u8], reply: &mut Reply) {
        write(self.carry_out(at, command), reply);
    }

    fn read(&self, _: &ReadContext<'_>, query: &[u8], reply: &mut Reply) {
        write(self.answer(query, reply.room()), reply);
    }

    fn freeze(&self) -> Bank {
        self.clone()
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        self.0 = Arc::new(serde_json::from_reader(from)?);
        Ok(())
    }
}

impl Frozen for Bank {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        Ok(serde_json::to_writer(out, &*self.0)?)
    }
}
