//! The mutant of this simulation: a bank that transfers with one command.

use std::io::{self, Read};

use stentor::{Context, ReadContext, Reply, StateMachine};
use stentor_bank::{Bank, Command, Ledger, Side, TransferId, Verdict};

/// A mutant of the bank that carries out a transfer with the first command. The payer's group debits the account if it
/// has enough money, and the payee's group credits the payee. The payee's group does not know whether the payer's group
/// has refused.
#[derive(Clone, Default)]
pub(crate) struct NaiveBank {
    sound: Bank,
    ledger: Ledger,
}

impl NaiveBank {
    fn transfer(&mut self, at: &Context<'_>, command: Command) -> Option<Verdict> {
        Some(match command {
            Command::Reserve(number, order) => {
                let id = TransferId::new(at.session()?, number, &order);
                let side = self.ledger.reserve(id, number, order, at.time());
                self.ledger.settle(id);
                match side {
                    Ok(Side::Held) => Verdict::Held,
                    Ok(Side::Expected) => Verdict::Expected,
                    Ok(Side::Refused(why)) | Err(why) => Verdict::Refused(why),
                }
            }
            Command::Settle(_) => Verdict::Settled,
            Command::Cancel(_) => Verdict::Cancelled,
            Command::Open(account) => self.ledger.open(account).map_or_else(Verdict::Refused, Verdict::Balance),
            Command::Deposit(account, amount) => {
                self.ledger.deposit(account, amount).map_or_else(Verdict::Refused, Verdict::Balance)
            }
            Command::Withdraw(account, amount) => {
                self.ledger.withdraw(account, amount).map_or_else(Verdict::Refused, Verdict::Balance)
            }
            Command::Pay(order) => self.ledger.pay(order).map_or_else(Verdict::Refused, Verdict::Balance),
        })
    }
}

impl StateMachine for NaiveBank {
    type Frozen = Bank;

    fn apply(&mut self, at: &Context<'_>, command: &[u8], reply: &mut Reply) {
        let verdict = serde_json::from_slice(command).ok().and_then(|command| self.transfer(at, command));
        reply.extend(&serde_json::to_vec(&verdict).expect("the verdict is serializable"));
        self.sound = Bank::from(self.ledger.clone());
    }

    fn read(&self, at: &ReadContext<'_>, query: &[u8], reply: &mut Reply) {
        self.sound.read(at, query, reply);
    }

    fn freeze(&self) -> Bank {
        self.sound.clone()
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        self.sound.restore(from)?;
        self.ledger = self.sound.ledger().clone();
        Ok(())
    }
}
