//! Ends transfers whose clients have left them in flight.

use std::time::Duration;

use stentor::{Client, Consistency, Group, Groups};

use crate::teller::{TellerError, ask, call};
use crate::transfer::{WrongReply, verdict};
use crate::{Command, Leg, Query, Side, TransferId, Verdict};

/// Numbers of transfers that [`finish_old`] has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Finished {
    /// Number of settled transfers, whose money went to the payee.
    pub settled: u64,
    /// Number of cancelled transfers. The amount, if it was held, went back to the payer.
    pub cancelled: u64,
}

/// Ends all transfers that were reserved at least `age` ago. Settles a transfer if the payer's group holds the amount
/// and the payee's group expects it, and cancels it otherwise. If `cancels` is set, cancels all of them.
///
/// The decision of a group about a transfer does not change while the transfer is open. So it does not matter that the
/// command reaches the groups later than the query. If the transfer's client is only slow, it receives
/// [`Verdict::Closed`].
///
/// # Errors
/// Returns an error if a group does not answer, or if a reply is invalid. Transfers that were ended before the error
/// stay ended.
pub fn finish_old(client: &Client, groups: &[Group], age: Duration, cancels: bool) -> Result<Finished, TellerError> {
    let mut finished = Finished::default();
    for group in groups {
        let now = now(client, *group)?;
        let mut behind = None;
        loop {
            let legs = match ask(client, *group, Query::Legs(behind))? {
                Verdict::Legs(legs) => legs,
                other => return Err(WrongReply::Verdict(other).into()),
            };
            let Some((last, _)) = legs.last() else { break };
            behind = Some(*last);
            for (id, leg) in legs {
                if now.saturating_sub(leg.since) >= age.as_nanos() as u64 {
                    match end(client, groups, id, leg, cancels)? {
                        Verdict::Settled => finished.settled += 1,
                        Verdict::Cancelled => finished.cancelled += 1,
                        // Another process has closed the transfer first.
                        _ => {}
                    }
                }
            }
        }
    }
    Ok(finished)
}

/// Returns the time of a group. An ordered read has a position in the order, so the time advances even if there are no
/// commands.
fn now(client: &Client, group: Group) -> Result<u64, TellerError> {
    let query = serde_json::to_vec(&Query::Totals).map_err(WrongReply::from)?;
    Ok(client.read(group, &query, Consistency::Ordered).wait()?.position().time)
}

/// Ends one transfer. Returns the verdict of the transfer's groups.
fn end(client: &Client, groups: &[Group], id: TransferId, leg: Leg, cancels: bool) -> Result<Verdict, TellerError> {
    let homes = [leg.order.from.home(groups), leg.order.to.home(groups)];
    let [Some(from), Some(to)] = homes else { return Err(TellerError::NoGroups) };
    let both = Groups::from([from, to]);
    let query = serde_json::to_vec(&Query::Leg(id)).map_err(WrongReply::from)?;
    let answer = client.read([from, to], &query, Consistency::Ordered).wait()?;
    let side = |group| match answer.of_group(group).map(verdict) {
        Some(Ok(Verdict::Leg(leg))) => Ok(leg.map(|leg| leg.side)),
        Some(Ok(other)) => Err(WrongReply::Verdict(other)),
        Some(Err(error)) => Err(error),
        None => Ok(None),
    };
    let settles = !cancels && side(from)? == Some(Side::Held) && side(to)? == Some(Side::Expected);
    let command = if settles { Command::Settle(id) } else { Command::Cancel(id) };
    call(client, both, command)
}
