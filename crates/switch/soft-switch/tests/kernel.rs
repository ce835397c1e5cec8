//! The switch between Stentor's endpoint and queue pairs of the Linux kernel. SEND, WRITE and WRITE_IMM go to one, two
//! and eight receivers, from Stentor to the kernel and from the kernel to both, without loss and with 1 % loss. The
//! test verifies the contents, and Wireshark reads the capture. It is ignored by default: the other side is
//! `kernel/members.c` in a guest, see `kernel/run.sh` (the step `switch-guests` of `cargo xtask test`).

mod capture;

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stentor_fabric::Status;
use stentor_fabric_roce::driver::{Chances, Mode, Pcap};
use stentor_fabric_roce::endpoint::{Data, Remote, Request, Work};
use stentor_soft_switch::{Attached, AttachedConfig, Faults, Settings, SoftSwitch};
use stentor_switch::control::{Link, Operation};
use stentor_switch::{Attachment, Cause, Host};
use stentor_wire::Psn;

const GID: u16 = 5;
const FORWARD: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const BACKWARD: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);
const OURS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 4);
const GUEST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const PATIENCE: Duration = Duration::from_secs(30);
/// Lengths of the messages, in bytes. No length leaves one byte for the last packet: Wireshark would take that byte,
/// with its three bytes of padding, for an EtherType.
const LENGTHS: [u32; 6] = [0, 3, 64, 1024, 1027, 5000];
/// Address of messages at a receiver.
const VA: u64 = 256;

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run `cargo xtask test --only switch-guests`"))
}

fn pattern(salt: u32, length: u32) -> Vec<u8> {
    (0..length).map(|i| (salt + 7 * i) as u8).collect()
}

/// The hosts whose queue pairs are the Linux kernel's, and the connection to the guest's program that drives them.
struct Kernel {
    stream: TcpStream,
    lines: BufReader<TcpStream>,
    hosts: Vec<Host>,
    links: Vec<Link>,
}

impl Kernel {
    fn meet() -> Kernel {
        let (place, count) = (variable("STENTOR_SWITCH_PEER"), variable("STENTOR_SWITCH_COUNT"));
        let since = Instant::now();
        let stream = loop {
            match TcpStream::connect(&place) {
                Ok(stream) => break stream,
                Err(error) => assert!(since.elapsed() < PATIENCE, "{place}: {error}"),
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        stream.set_nodelay(true).unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap());
        let mut kernel = Kernel { stream, lines, hosts: Vec::new(), links: Vec::new() };
        for rank in 1..=count.parse::<u8>().unwrap() {
            let line = kernel.read_line();
            let numbers: Vec<u64> = line.split(' ').map(|number| number.parse().unwrap()).collect();
            let [sqpn, spsn, rqpn, rpsn, rkey, base] = numbers[..] else { panic!("{line}") };
            let attachment = |qpn, psn| Attachment { ip: GUEST, qpn: qpn as u32, first_psn: Psn::new(psn as u32) };
            kernel.hosts.push(Host { sends: attachment(sqpn, spsn), receives: attachment(rqpn, rpsn) });
            kernel.links.push(Link { rank, rkey: rkey as u32, base });
        }
        kernel
    }

    fn write_line(&mut self, line: &str) {
        self.stream.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn ask(&mut self, line: &str) {
        self.write_line(line);
        assert_eq!(self.read_line(), "ok", "{line}");
    }

    /// Returns the command with which a rank links other members.
    fn link_line(rank: usize, links: &[Link]) -> String {
        let links: Vec<_> =
            links.iter().map(|link| format!(" {} {:x} {:x}", link.rank, link.rkey, link.base)).collect();
        format!("link {rank} {}{}", links.len(), links.concat())
    }
}

/// The switch, in its own thread.
struct Running {
    switch: Arc<Mutex<SoftSwitch>>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    fn start(switch: SoftSwitch) -> Running {
        let (switch, stop) = (Arc::new(Mutex::new(switch)), Arc::new(AtomicBool::new(false)));
        let (own, ends) = (Arc::clone(&switch), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                if !own.lock().unwrap().round().unwrap() {
                    std::thread::yield_now();
                }
            }
        });
        Running { switch, stop, thread: Some(thread) }
    }

    fn with<T>(&self, what: impl FnOnce(&mut SoftSwitch) -> T) -> T {
        what(&mut self.switch.lock().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Stentor's host, with the receives that completed.
struct Ours {
    host: Attached,
    received: Vec<(u32, Option<u32>)>,
    next: u64,
}

impl Ours {
    fn drive(&mut self, mut is_over: impl FnMut(&mut Ours, Option<(u64, Status)>) -> bool) {
        let since = Instant::now();
        loop {
            let worked = self.host.drive().unwrap();
            let mut done = None;
            while let Some((completion, receives)) = self.host.poll() {
                if receives {
                    self.received.push((completion.bytes, completion.imm));
                } else {
                    done = Some((completion.id, completion.status));
                }
            }
            if is_over(self, done) {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "{:?}", self.host.endpoint.counters());
            if !worked {
                std::thread::yield_now();
            }
        }
    }

    /// Runs until the request that was posted last is done.
    fn finish(&mut self) {
        let id = self.next;
        let mut status = None;
        self.drive(|_, done| {
            status = status.or(done.filter(|(other, _)| *other == id).map(|(_, status)| status));
            status.is_some()
        });
        assert_eq!(status, Some(Status::Success));
    }

    fn control(&mut self, operation: Operation, links: &[Link]) {
        self.next += 1;
        self.host.control(operation, links, self.next).unwrap();
        self.finish();
    }

    fn request(&mut self, request: Request<'_>) {
        self.next += 1;
        self.host.post(&Work::signalled(self.next, request)).unwrap();
        self.finish();
    }

    /// Sends the guest a command, and drives the host until the guest has executed it.
    fn while_asked(&mut self, kernel: &mut Kernel, line: &str) {
        kernel.write_line(line);
        kernel.stream.set_nonblocking(true).unwrap();
        let mut said = String::new();
        self.drive(|_, _| match kernel.lines.read_line(&mut said) {
            Ok(_) => said.ends_with('\n'),
            Err(_) => false,
        });
        kernel.stream.set_nonblocking(false).unwrap();
        assert_eq!(said.trim_end(), "ok", "{line}");
    }
}

/// Sends from Stentor's host to one, two and eight hosts of the kernel.
fn ours_sends(ours: &mut Ours, kernel: &mut Kernel, salt: &mut u32) {
    for n in [1, 2, 8] {
        let links = kernel.links[..n].to_vec();
        ours.control(Operation::Link, &links);
        for bytes in LENGTHS {
            *salt += 1;
            let data = pattern(*salt, bytes);
            let (data, remote) = (Data::Inline(&data), Remote { va: VA, rkey: 1 });
            ours.request(Request::Write { data, remote, imm: None });
            (1..=n).for_each(|rank| kernel.ask(&format!("holds {rank} {VA} {bytes} {salt}")));
            *salt += 1;
            let data = pattern(*salt, bytes);
            let data = Data::Inline(&data);
            ours.request(Request::Write { data, remote, imm: Some(*salt) });
            ours.request(Request::Send { data, imm: Some(*salt + 1) });
            for rank in 1..=n {
                kernel.ask(&format!("took {rank} {bytes} {salt} {salt} 0"));
                kernel.ask(&format!("holds {rank} {VA} {bytes} {salt}"));
                kernel.ask(&format!("took {rank} {bytes} {salt} {} 1", *salt + 1));
            }
        }
        (1..=8).for_each(|rank| kernel.ask(&format!("idle {rank}")));
    }
    ours.control(Operation::Release, &[]);
}

/// Sends from the kernel's first rank to Stentor's host and to none, one and seven other ranks of the kernel.
fn kernel_sends(ours: &mut Ours, kernel: &mut Kernel, salt: &mut u32) {
    for n in [1, 2, 8] {
        let mut links = vec![ours.host.link(0)];
        links.extend(&kernel.links[1..n]);
        ours.while_asked(kernel, &Kernel::link_line(1, &links));
        for bytes in LENGTHS {
            for word in ["write", "write_imm", "send"] {
                *salt += 1;
                ours.received.clear();
                ours.while_asked(kernel, &format!("{word} 1 {VA:x} {bytes} {salt} {salt}"));
                for rank in 2..=n {
                    if word != "write" {
                        let whole = u8::from(word == "send");
                        kernel.ask(&format!("took {rank} {bytes} {salt} {salt} {whole}"));
                    }
                    if word != "send" {
                        kernel.ask(&format!("holds {rank} {VA} {bytes} {salt}"));
                    }
                }
                let (at, length) = (VA as usize, bytes as usize);
                let found = if word == "send" { ours.host.received(0, length) } else { ours.host.bytes(at, length) };
                assert!(found == pattern(*salt, bytes), "{word} of {bytes} bytes");
                let expected: &[_] = if word == "write" { &[] } else { &[(bytes, Some(*salt))] };
                assert_eq!(ours.received, expected, "{word} of {bytes} bytes");
                ours.host.post_receives(expected.len() as u32, 8192).unwrap();
            }
        }
    }
    ours.while_asked(kernel, "release 1 0");
}

/// The kernel requests a set that Stentor's host holds. The kernel receives RNR NAKs for a plain WRITE, retries, and
/// acquires the set when the holder releases it.
fn kernel_waits(ours: &mut Ours, kernel: &mut Kernel, running: &Running) {
    ours.control(Operation::Link, &[kernel.links[1]]);
    let busy = |switch: &mut SoftSwitch| switch.switch().counters().of(Cause::Busy);
    let before = running.with(busy);
    kernel.write_line(&Kernel::link_line(1, &[kernel.links[1]]));
    let since = Instant::now();
    while running.with(busy) < before + 3 {
        assert!(since.elapsed() < PATIENCE, "the kernel did not request the set");
        std::thread::yield_now();
    }
    ours.control(Operation::Release, &[]);
    assert_eq!(kernel.read_line(), "ok", "the kernel retries a WRITE after RNR NAKs");
    ours.while_asked(kernel, "release 1 0");
}

#[test]
#[ignore = "needs a guest with Soft-RoCE: run by `cargo xtask test --only switch-guests`"]
fn kernel_queue_pairs_are_hosts_like_ours() {
    let file = PathBuf::from(variable("STENTOR_SWITCH_WORK")).join("switch.pcap");
    let mut kernel = Kernel::meet();
    let mut settings = Settings::new("guests", FORWARD, BACKWARD);
    settings.mode = Mode::Raw;
    let mut switch = SoftSwitch::open(&settings).unwrap();
    switch.capture(Pcap::create(&file).unwrap());
    let config = AttachedConfig { mode: Mode::Raw, ..AttachedConfig::new(OURS, 0, GID, [FORWARD, BACKWARD]) };
    let mut ours = Ours { host: Attached::connected(config).unwrap(), received: Vec::new(), next: 0 };
    ours.host.post_receives(16, 8192).unwrap();
    let hosts: Vec<Host> = std::iter::once(ours.host.description()).chain(kernel.hosts.iter().copied()).collect();
    switch.switch_mut().create(GID, Duration::from_secs(60), &hosts).unwrap();
    kernel.ask(&format!("connect {GID} {FORWARD} {BACKWARD}"));
    let running = Running::start(switch);
    let mut salt = 0;
    for (drop, rounds) in [(0.0, 1), (0.01, 5)] {
        let faults = Faults { links: Chances { drop, ..Chances::default() }, loop_drop: drop, seed: 7 };
        running.with(|switch| switch.inject(faults));
        let since = Instant::now();
        for _ in 0..rounds {
            ours_sends(&mut ours, &mut kernel, &mut salt);
            kernel_sends(&mut ours, &mut kernel, &mut salt);
            kernel_waits(&mut ours, &mut kernel, &running);
        }
        let (injected, tally) = running.with(|switch| (switch.injected(), switch.tally()));
        println!("switch: loss {drop}: {tally:?}, injected {injected:?}, {:.1} s", since.elapsed().as_secs_f64());
        assert_eq!(injected[0] > 20 && injected[4] > 0, drop > 0.0, "{injected:?}");
    }
    let (received, sent) = running.with(|switch| {
        switch.pcap_mut().unwrap().finish().unwrap();
        for (cause, count) in switch.switch().counters().list() {
            println!("switch: {cause} {count}");
        }
        assert_eq!(switch.switch().counters().of(Cause::Damaged), 0, "a received packet has a wrong ICRC");
        assert_eq!(switch.kernel_lost()[0], 0, "the kernel dropped outgoing packets");
        (switch.tally().received, switch.tally().sent)
    });
    let packets = capture::dissected(&file);
    assert_eq!(packets.len() as u64, received + sent, "every packet is in the capture");
    capture::all_are_sound(&file, &packets);
    println!("switch: {} packets dissected", packets.len());
}
