//! The client process of the demonstration.

use anyhow::Result;
use stentor::Cluster;
use stentor_bank::{Account, Journal, Order, Teller};

use crate::args::TellerArguments;

/// Number of transfers between two printed lines.
const LINE: u64 = 10;

/// Transfers between random accounts until the given number of transfers has ended. Prints the counts as JSON, every
/// [`LINE`] transfers and at the end.
pub(crate) fn run(cluster: &Cluster, arguments: &TellerArguments) -> Result<()> {
    let mut teller = Teller::open(cluster, Journal::at(&arguments.journal))?;
    // A restarted process of the same teller must draw other random numbers.
    let mut random = Random(arguments.seed.wrapping_add(teller.counts().ended() << 32));
    loop {
        let ended = teller.counts().ended();
        if ended.is_multiple_of(LINE) || ended >= arguments.transfers {
            println!("{}", serde_json::to_string(&teller.counts())?);
        }
        if ended >= arguments.transfers {
            break;
        }
        let account = |random: &mut Random| Account(random.below(arguments.accounts));
        let order = Order { from: account(&mut random), to: account(&mut random), amount: 1 + random.below(200) };
        teller.transfer(order)?;
    }
    Ok(teller.close()?)
}

/// The generator SplitMix64, which is good enough for random orders.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)).checked_rem(limit).unwrap_or(0)
    }
}
