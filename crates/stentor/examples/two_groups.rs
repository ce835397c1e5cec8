//! A command to two groups: both apply it at one position in the order, or neither does.
//!
//! `cargo run -p stentor --example two_groups` starts two banks in this process, each a group of three nodes. One
//! client moves money from one bank to the other by commands to both. Another client repeatedly reads both at one
//! position: no read ever shows money that has left one bank and has not arrived at the other.

use std::error::Error;
use std::io::{self, Read, Write};

use stentor::{Client, Cluster, Consistency, Context, Frozen, Group, ReadContext, Reply, StateMachine};

const TRANSFERS: i64 = 200;

/// The money of one bank. A command is the amount that moves from the first bank to the second.
#[derive(Clone, Copy)]
struct Bank {
    is_first: bool,
    money: i64,
}

impl StateMachine for Bank {
    type Frozen = Bank;

    /// Applies a transfer. Each group sees only its own value, so the command describes the change for both.
    fn apply(&mut self, _: &Context<'_>, command: &[u8], _: &mut Reply) {
        let Ok(amount) = command.try_into().map(i64::from_le_bytes) else { return };
        self.money += if self.is_first { -amount } else { amount };
    }

    fn read(&self, _: &ReadContext<'_>, _: &[u8], reply: &mut Reply) {
        reply.extend(&self.money.to_le_bytes());
    }

    fn freeze(&self) -> Bank {
        *self
    }

    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let mut bytes = [0; 8];
        from.read_exact(&mut bytes)?;
        self.money = i64::from_le_bytes(bytes);
        Ok(())
    }
}

impl Frozen for Bank {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.money.to_le_bytes())
    }
}

/// Reads both banks at one position in the order.
fn read(client: &Client, both: [Group; 2]) -> Result<[i64; 2], Box<dyn Error>> {
    let answer = client.read(both, b"", Consistency::Ordered).wait()?;
    let mut money = [0; 2];
    for (money, bank) in money.iter_mut().zip(both) {
        let reply = answer.of_group(bank).ok_or("each group replies")?;
        *money = i64::from_le_bytes(reply.try_into()?);
    }
    Ok(money)
}

fn main() -> Result<(), Box<dyn Error>> {
    let members = |bank: &'static str| (1..=3).map(move |n| (format!("{bank}.{n}"), format!("127.0.0.{n}:7{bank}01")));
    let cluster = Cluster::builder("banks").group("1", members("1")).group("2", members("2")).build()?;
    let both = [cluster.group("1")?, cluster.group("2")?];
    let mut nodes = Vec::new();
    for bank in both {
        for name in cluster.members(bank) {
            nodes.push(cluster.node(name, Bank { is_first: bank == both[0], money: 1000 }).spawn()?);
        }
    }

    let (mover, auditor) = (cluster.client().connect()?, cluster.client().connect()?);
    // All calls are in flight concurrently; their order is that of these calls.
    let calls: Vec<_> = (1..=TRANSFERS).map(|amount| mover.call(both, &(amount % 7).to_le_bytes())).collect();
    let (mut audits, mut wrong) = (0, 0);
    while audits < 50 {
        wrong += u32::from(read(&auditor, both)?.iter().sum::<i64>() != 2000);
        audits += 1;
    }
    for call in calls {
        call.wait()?;
    }
    println!("{audits} reads of both banks, and {wrong} with a wrong sum");
    println!("after {TRANSFERS} transfers: {:?}", read(&auditor, both)?);

    mover.close()?;
    auditor.close()?;
    for node in nodes {
        node.stop()?;
    }
    Ok(())
}
