//! `stentor roce`: RoCEv2 in user space, against other implementations.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use serde::Serialize;
use stentor_fabric_roce::driver::{Mode, source_address};
use stentor_fabric_roce::peer::{
    self, Destination, PeerConfig, PeerError, Pingpong as Game, PingpongOutcome, listen, meet,
};
use stentor_support::{Failure, Human, Output, Style, Verdict};

use crate::args::{Pingpong, RoceCommand, Taking};

/// Time for which a client waits for the server to start.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn run(command: &RoceCommand, output: Output) -> Result<Verdict, Failure> {
    let RoceCommand::Pingpong(args) = command;
    pingpong(args, output)
}

/// The result, as it is printed.
#[derive(Serialize)]
struct Report {
    ok: bool,
    role: &'static str,
    /// Size of a message, in bytes.
    bytes: u32,
    iterations: u32,
    seconds: f64,
    us_per_iteration: f64,
    mbit_per_s: f64,
    /// Mode in which packets were received.
    mode: &'static str,
    injected: Injected,
    counters: String,
}

#[derive(Serialize)]
struct Injected {
    lost: u64,
    repeated: u64,
    reordered: u64,
    damaged: u64,
}

impl Human for Report {
    fn human(&self, _: Style) -> String {
        let mut text = String::new();
        let total = 2 * u64::from(self.bytes) * u64::from(self.iterations);
        let Report { seconds, mbit_per_s, iterations, us_per_iteration, .. } = self;
        let _ = writeln!(text, "{total} bytes in {seconds:.2} seconds = {mbit_per_s:.2} Mbit/sec");
        let _ = writeln!(text, "{iterations} iters in {seconds:.2} seconds = {us_per_iteration:.2} usec/iter");
        let _ = writeln!(text, "packets were received from a {}", self.mode);
        let Injected { lost, repeated, reordered, damaged } = self.injected;
        if lost + repeated + reordered + damaged > 0 {
            let _ =
                writeln!(text, "injected: {lost} lost, {repeated} repeated, {reordered} reordered, {damaged} damaged");
        }
        let _ = writeln!(text, "counters: {}", self.counters);
        text
    }
}

fn pingpong(args: &Pingpong, output: Output) -> Result<Verdict, Failure> {
    let place = args.host.clone().unwrap_or_else(|| "this server".to_owned());
    let failed = |error: PeerError| failure(&error, &place);
    let address = own_address(args)?;
    let mut config = PeerConfig::new(address);
    config.mode = match args.mode {
        Taking::Auto => None,
        Taking::Raw => Some(Mode::Raw),
        Taking::Plain => Some(Mode::PlainAnyId),
    };
    (config.mtu, config.pcap) = (args.mtu, args.network.pcap.clone());
    (config.chances, config.seed) = (args.network.bad.chances(), args.network.seed);
    let game = Game { iterations: args.iterations, bytes: args.size, peer: config };
    let meeting = || match &args.host {
        Some(host) => meet(host, args.port, PATIENCE),
        None => listen(SocketAddr::new(address, args.port)),
    };
    let told = |own: &Destination, other: &Destination| {
        for (whose, it) in [("local", own), ("remote", other)] {
            let (number, psn, address) = (it.number, it.psn, it.address);
            output.note(&format!("{whose:>8} address: QPN {number:#08x}, PSN {psn:#08x}, GID {address}"));
        }
    };
    let outcome = peer::pingpong(&game, args.host.is_some(), meeting, told).map_err(failed)?;
    output.conclude(&report(args, outcome), Verdict::Good)
}

fn report(args: &Pingpong, outcome: PingpongOutcome) -> Report {
    let seconds = outcome.time.as_secs_f64();
    let iterations = f64::from(args.iterations);
    let [lost, repeated, reordered, damaged] = outcome.injected;
    Report {
        ok: true,
        role: if args.host.is_some() { "client" } else { "server" },
        bytes: args.size,
        iterations: args.iterations,
        seconds,
        us_per_iteration: seconds * 1e6 / iterations,
        mbit_per_s: f64::from(args.size) * 2.0 * iterations * 8.0 / seconds / 1e6,
        mode: match outcome.mode {
            Mode::Raw => "raw socket: the whole ICRC is checked",
            Mode::PlainAnyId => "plain socket: the ICRC is checked except for the IPv4 identification",
            Mode::Plain => "plain socket: the whole ICRC is checked",
        },
        injected: Injected { lost, repeated, reordered, damaged },
        counters: outcome.counters,
    }
}

fn own_address(args: &Pingpong) -> Result<IpAddr, Failure> {
    if let Some(address) = args.bind {
        return Ok(address);
    }
    let host = args.host.as_deref().unwrap_or_default();
    let unknown = |error: std::io::Error| Failure::usage(error, host, "name a host that exists, and perhaps --bind");
    let mut found = (host, args.port).to_socket_addrs().map_err(unknown)?;
    let server = found.next().ok_or_else(|| unknown(std::io::ErrorKind::NotFound.into()))?;
    source_address(server).map_err(unknown)
}

fn failure(error: &PeerError, place: &str) -> Failure {
    match error {
        PeerError::Port(_) => {
            Failure::usage(error, "UDP port 4791", "choose another address with --bind, or --mode plain")
        }
        PeerError::Transition(_) => Failure::usage(error, "command line", "see stentor roce pingpong --help"),
        PeerError::Capture { path, source } => Failure::cannot_create("capture", path, source),
        PeerError::Tcp { what: "listen at", place, .. } => {
            Failure::usage(error, place, "choose an address of this host with --bind, or another port with -p")
        }
        PeerError::Tcp { .. } | PeerError::Handshake { .. } => {
            Failure::run(error, place, "start the server first, with the same port, and ibv_rc_pingpong with -g")
        }
        _ => Failure::run(error, place, "look at both sides with --pcap FILE; -n, -s and -m must be equal on both"),
    }
}
