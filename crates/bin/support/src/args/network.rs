//! Captures and faulty networks, for commands on RoCEv2.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use serde::{Deserialize, Serialize};
use stentor_fabric_roce::driver::Chances;

/// Options of a command that runs in one process: a packet capture, and faults of the network.
#[derive(Args, Clone, Debug, Default, Serialize, Deserialize)]
pub struct Network {
    /// Write every packet to a capture for Wireshark; the file must not exist
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub pcap: Option<PathBuf>,
    /// Faults of the network.
    #[command(flatten)]
    pub bad: BadNetwork,
    /// Seed of the faults of the network
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Options of a command that starts several processes: packet captures, and faults of the network.
#[derive(Args, Clone, Debug)]
pub struct Networks {
    /// Write the packets that each process sends and receives to a capture for Wireshark: with `run.pcap` the captures
    /// are `run-g1.1.pcap` and so on, and `run-g1.1.2.pcap` when that process is started again. None of these files may
    /// exist; `mergecap -w all.pcap run-*.pcap` joins them
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub pcap: Option<PathBuf>,
    /// Faults of the network.
    #[command(flatten)]
    pub bad: BadNetwork,
}

/// Options of a command that starts several processes: packet captures, and faults of the network with their seed.
#[derive(Args, Clone, Debug)]
pub struct SeededNetworks {
    /// Captures, and the faults of the network.
    #[command(flatten)]
    pub networks: Networks,
    /// Seed of the faults of the network; faults differ from process to process
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Faults that a simulated bad network injects into packets.
#[derive(Args, Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct BadNetwork {
    /// Lose a packet, in either direction, with this chance
    #[arg(long, value_name = "0..1", default_value_t = 0.0, value_parser = chance)]
    pub drop_chance: f64,
    /// Duplicate a packet with this chance
    #[arg(long, value_name = "0..1", default_value_t = 0.0, value_parser = chance)]
    pub duplicate_chance: f64,
    /// Delay a packet, so that later ones overtake it, with this chance
    #[arg(long, value_name = "0..1", default_value_t = 0.0, value_parser = chance)]
    pub reorder_chance: f64,
    /// Flip a bit of a packet with this chance
    #[arg(long, value_name = "0..1", default_value_t = 0.0, value_parser = chance)]
    pub corrupt_chance: f64,
    /// Delay every packet, microseconds
    #[arg(long, value_name = "US", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    pub delay: u64,
}

impl BadNetwork {
    /// Returns each chance with its argument and with the verb for its effect on packets.
    pub fn named(&self) -> [(&'static str, &'static str, f64); 4] {
        [
            ("--drop-chance", "lost", self.drop_chance),
            ("--duplicate-chance", "repeated", self.duplicate_chance),
            ("--reorder-chance", "reordered", self.reorder_chance),
            ("--corrupt-chance", "damaged", self.corrupt_chance),
        ]
    }

    /// Returns the faults in the form that the RoCE fabric expects.
    pub fn chances(&self) -> Chances {
        Chances {
            drop: self.drop_chance,
            duplicate: self.duplicate_chance,
            reorder: self.reorder_chance,
            corrupt: self.corrupt_chance,
            delay: self.delay * 1000,
        }
    }
}

fn chance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(chance) if (0.0..=1.0).contains(&chance) => Ok(chance),
        _ => Err("a chance is a number from 0 to 1".to_owned()),
    }
}
