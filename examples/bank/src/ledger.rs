//! The accounts of one group, and the group's legs of transfers that are not closed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;

use serde::{Deserialize, Serialize};

use crate::{Account, Leg, Order, Refusal, Side, Totals, TransferId};

/// Maximum sum of all deposits of a group. With up to 1024 groups all money is at most 2^63, so no credit overflows.
pub const DEPOSITS: u64 = 1 << 53;

/// The accounts of one group and its legs of open transfers. These invariants hold after every operation:
///
/// - Only [`deposit`](Ledger::deposit) and [`withdraw`](Ledger::withdraw) change the sums of deposits and withdrawals.
///   They change a balance by the same amount.
/// - [`reserve`](Ledger::reserve) and [`cancel`](Ledger::cancel) do not change the sum of the balances and the held
///   amounts. [`settle`](Ledger::settle) lowers this sum in the payer's group by as much as it raises the sum in the
///   payee's group.
/// - No amount is lost by an overflow.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Ledger {
    accounts: BTreeMap<Account, u64>,
    legs: BTreeMap<TransferId, Leg>,
    deposited: u64,
    withdrawn: u64,
}

impl Ledger {
    /// Opens an empty account.
    ///
    /// # Errors
    /// Returns an error if the account is open already.
    pub fn open(&mut self, account: Account) -> Result<u64, Refusal> {
        match self.accounts.entry(account) {
            Entry::Occupied(_) => Err(Refusal::Exists(account)),
            Entry::Vacant(free) => Ok(*free.insert(0)),
        }
    }

    /// Pays money in, and returns the new balance.
    ///
    /// # Errors
    /// Returns an error if there is no such account, or the group does not accept the amount.
    pub fn deposit(&mut self, account: Account, amount: u64) -> Result<u64, Refusal> {
        let deposited = self.deposited.checked_add(amount).filter(|all| *all <= DEPOSITS);
        let deposited = deposited.filter(|_| amount > 0).ok_or(Refusal::Amount(amount))?;
        let balance = self.credit(account, amount)?;
        self.deposited = deposited;
        Ok(balance)
    }

    /// Pays money out, and returns the new balance.
    ///
    /// # Errors
    /// Returns an error if there is no such account, its balance is below the amount, or the amount is 0.
    pub fn withdraw(&mut self, account: Account, amount: u64) -> Result<u64, Refusal> {
        let balance = self.debit(account, amount)?;
        // This sum cannot overflow: it is at most the sum of the deposits in all groups.
        self.withdrawn += amount;
        Ok(balance)
    }

    /// Transfers between two accounts of this group, and returns the new balance of the payer.
    ///
    /// # Errors
    /// Returns an error if one of the accounts is not in this group, the payer's balance is below the amount, or the
    /// amount is 0.
    pub fn pay(&mut self, order: Order) -> Result<u64, Refusal> {
        if !self.accounts.contains_key(&order.to) {
            return Err(Refusal::NoAccount(order.to));
        }
        self.debit(order.from, order.amount)?;
        self.credit(order.to, order.amount)?;
        self.balance(order.from).ok_or(Refusal::NoAccount(order.from))
    }

    /// Creates the leg of a transfer between two groups.
    ///
    /// # Errors
    /// Returns an error if there is already a leg with this name. In that case this group does not change. The other
    /// group has a leg with this name, too, and refuses it in the same way: the name contains both accounts.
    pub fn reserve(&mut self, id: TransferId, number: u64, order: Order, since: u64) -> Result<Side, Refusal> {
        if self.legs.contains_key(&id) {
            return Err(Refusal::NumberInUse(number));
        }
        let has = |account| self.accounts.contains_key(&account);
        let side = match (has(order.from), has(order.to)) {
            (true, true) => Side::Refused(Refusal::OneGroup),
            (true, false) => self.debit(order.from, order.amount).map_or_else(Side::Refused, |_| Side::Held),
            (false, true) if order.amount <= DEPOSITS => Side::Expected,
            (false, true) => Side::Refused(Refusal::Amount(order.amount)),
            // One of the two accounts should be in this group, but the group cannot know which one.
            (false, false) => Side::Refused(Refusal::NoAccount(order.from)),
        };
        self.legs.insert(id, Leg { order, side, since });
        Ok(side)
    }

    /// Settles a transfer: drops the held amount, or credits the expected amount. Returns whether the group had a leg
    /// of the transfer.
    pub fn settle(&mut self, id: TransferId) -> bool {
        let Some(leg) = self.legs.remove(&id) else { return false };
        if leg.side == Side::Expected {
            self.pay_in(&leg.order.to, leg.order.amount);
        }
        true
    }

    /// Cancels a transfer: credits a held amount to the payer. Returns whether the group had a leg of the transfer.
    pub fn cancel(&mut self, id: TransferId) -> bool {
        let Some(leg) = self.legs.remove(&id) else { return false };
        if leg.side == Side::Held {
            self.pay_in(&leg.order.from, leg.order.amount);
        }
        true
    }

    /// Returns the balance of an account, or `None` if the account is not in this group.
    #[must_use]
    pub fn balance(&self, account: Account) -> Option<u64> {
        self.accounts.get(&account).copied()
    }

    /// Returns the leg of a transfer, or `None` if the group has no leg of it.
    #[must_use]
    pub fn leg(&self, id: TransferId) -> Option<Leg> {
        self.legs.get(&id).copied()
    }

    /// Returns the legs of the transfers whose names follow `id`, or all legs if `id` is `None`. The legs are ordered
    /// by name.
    pub fn legs_behind(&self, id: Option<TransferId>) -> impl Iterator<Item = (TransferId, Leg)> + '_ {
        let from = id.map_or(Bound::Unbounded, Bound::Excluded);
        self.legs.range((from, Bound::Unbounded)).map(|(id, leg)| (*id, *leg))
    }

    /// Returns the sums of this group.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let held = self.legs.values().filter(|leg| leg.side == Side::Held);
        Totals {
            accounts: self.accounts.len() as u64,
            balances: self.accounts.values().sum(),
            held: held.map(|leg| leg.order.amount).sum(),
            deposited: self.deposited,
            withdrawn: self.withdrawn,
            legs: self.legs.len() as u64,
        }
    }

    fn debit(&mut self, account: Account, amount: u64) -> Result<u64, Refusal> {
        let balance = self.accounts.get_mut(&account).ok_or(Refusal::NoAccount(account))?;
        if amount == 0 {
            return Err(Refusal::Amount(amount));
        }
        *balance = balance.checked_sub(amount).ok_or(Refusal::Insufficient(*balance))?;
        Ok(*balance)
    }

    fn credit(&mut self, account: Account, amount: u64) -> Result<u64, Refusal> {
        let balance = self.accounts.get_mut(&account).ok_or(Refusal::NoAccount(account))?;
        *balance = balance.checked_add(amount).ok_or(Refusal::Amount(amount))?;
        Ok(*balance)
    }

    /// Credits an amount that the group has held or expected. The account exists, because accounts are never closed.
    /// The credit cannot overflow: see [`DEPOSITS`].
    fn pay_in(&mut self, account: &Account, amount: u64) {
        if let Some(balance) = self.accounts.get_mut(account) {
            *balance = balance.saturating_add(amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use stentor::SessionId;

    use super::*;

    const HERE: Account = Account(2);
    const THERE: Account = Account(3);

    fn id(number: u64) -> TransferId {
        TransferId::new(SessionId::from_bytes([1; 16]), number, &order(0))
    }

    /// Returns the payer's group with a balance of 10, and the payee's group.
    fn both() -> (Ledger, Ledger) {
        let (mut payer, mut payee) = (Ledger::default(), Ledger::default());
        payer.open(HERE).unwrap();
        payer.deposit(HERE, 10).unwrap();
        payee.open(THERE).unwrap();
        (payer, payee)
    }

    fn order(amount: u64) -> Order {
        Order { from: HERE, to: THERE, amount }
    }

    fn sum(both: &(Ledger, Ledger)) -> u64 {
        let sum = |ledger: &Ledger| ledger.totals().balances + ledger.totals().held;
        sum(&both.0) + sum(&both.1)
    }

    #[test]
    fn settled_transfer_moves_the_amount() {
        let mut both = both();
        assert_eq!(both.0.reserve(id(1), 1, order(4), 5), Ok(Side::Held));
        assert_eq!(both.1.reserve(id(1), 1, order(4), 5), Ok(Side::Expected));
        assert_eq!((sum(&both), both.0.totals().held, both.0.balance(HERE)), (10, 4, Some(6)));
        assert!(both.0.settle(id(1)) && both.1.settle(id(1)));
        assert_eq!((sum(&both), both.0.totals().held, both.1.balance(THERE)), (10, 0, Some(4)));
        // Another process settles and cancels too late.
        assert!(!both.0.cancel(id(1)) && !both.1.cancel(id(1)) && !both.0.settle(id(1)) && !both.1.settle(id(1)));
        assert_eq!(sum(&both), 10);
    }

    #[test]
    fn cancelled_transfer_changes_nothing() {
        let mut both = both();
        let before = both.clone();
        both.0.reserve(id(1), 1, order(4), 5).unwrap();
        both.1.reserve(id(1), 1, order(4), 5).unwrap();
        assert!(both.0.cancel(id(1)) && both.1.cancel(id(1)));
        assert_eq!(both, before);
    }

    #[test]
    fn refused_transfer_has_legs_until_it_is_closed() {
        let mut both = both();
        let refused = Side::Refused(Refusal::Insufficient(10));
        assert_eq!(both.0.reserve(id(1), 1, order(11), 5), Ok(refused));
        assert_eq!(both.1.reserve(id(1), 1, order(11), 5), Ok(Side::Expected));
        // The name cannot be reserved with another amount meanwhile. Otherwise the legs of the two groups could differ.
        assert_eq!(both.0.reserve(id(1), 1, order(2), 5), Err(Refusal::NumberInUse(1)));
        assert!(both.0.cancel(id(1)) && both.1.cancel(id(1)));
        assert_eq!(sum(&both), 10);
    }

    /// A client that uses a number again for other groups does not affect the first transfer.
    #[test]
    fn number_that_is_used_again_for_other_groups_names_another_transfer() {
        let mut both = both();
        let mut third = Ledger::default();
        third.open(Account(4)).unwrap();
        third.deposit(Account(4), 10).unwrap();
        both.0.reserve(id(1), 1, order(4), 5).unwrap();
        both.1.reserve(id(1), 1, order(4), 5).unwrap();
        let again = Order { from: Account(4), to: THERE, amount: 7 };
        let second = TransferId::new(SessionId::from_bytes([1; 16]), 1, &again);
        assert_eq!(third.reserve(second, 1, again, 6), Ok(Side::Held));
        assert_eq!(both.1.reserve(second, 1, again, 6), Ok(Side::Expected));
        assert!(third.cancel(second) && both.1.cancel(second));
        assert!(both.0.settle(id(1)) && both.1.settle(id(1)), "both legs are still there");
        assert_eq!((sum(&both), both.1.balance(THERE), third.balance(Account(4))), (10, Some(4), Some(10)));
    }

    #[test]
    fn impossible_orders_are_refused() {
        let (mut ledger, _) = both();
        let side = |ledger: &mut Ledger, number, order| ledger.reserve(id(number), number, order, 0);
        assert_eq!(side(&mut ledger, 1, order(0)), Ok(Side::Refused(Refusal::Amount(0))));
        let none = Order { from: Account(8), to: Account(9), amount: 1 };
        assert_eq!(side(&mut ledger, 2, none), Ok(Side::Refused(Refusal::NoAccount(Account(8)))));
        let much = Order { from: THERE, to: HERE, amount: u64::MAX };
        assert_eq!(side(&mut ledger, 3, much), Ok(Side::Refused(Refusal::Amount(u64::MAX))));
        let same = Order { from: HERE, to: HERE, amount: 3 };
        assert_eq!(side(&mut ledger, 4, same), Ok(Side::Refused(Refusal::OneGroup)));
        assert_eq!((ledger.pay(same), ledger.pay(order(3))), (Ok(10), Err(Refusal::NoAccount(THERE))));
        assert_eq!(ledger.deposit(HERE, DEPOSITS), Err(Refusal::Amount(DEPOSITS)));
        assert_eq!(ledger.withdraw(HERE, 11), Err(Refusal::Insufficient(10)));
        assert_eq!(ledger.balance(HERE), Some(10));
    }
}
