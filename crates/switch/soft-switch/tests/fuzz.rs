//! Fuzzes all inputs of a switch: packets of strangers and connections without the key, mutated messages of hosts that
//! have it, and mutated configurations. A set that hosts use meanwhile is not disturbed, and these inputs change none
//! of its registers. Each test runs for `STENTOR_FUZZ_SECONDS` (default 1 second). `STENTOR_FUZZ_SEED` selects another
//! seed.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use stentor_fabric::{ProcessId, Status};
use stentor_fabric_net::control_session::{ControlSession, SessionConfig};
use stentor_fabric_roce::endpoint::{Data, Request, Work};
use stentor_soft_switch::{Attached, AttachedConfig, Heard, Member, Settings, SoftSwitch, example};
use stentor_switch::control::{self, CONTROL_RKEY, CONTROL_VA, Head, Link, MAX_CONTROL_BYTES, Operation};
use stentor_switch::enrol::{Join, Ready, ToSwitch, VERSION};
use stentor_switch::{Attachment, Cause, Switch};
use stentor_testutil::{SplitMix64, number_of_environment};
use stentor_wire::{Aeth, Bth, Envelope, Headers, Message, Psn, Repr, Response, Reth, Syndrome};

const KEY: &[u8] = b"the key of the test";
const HOSTS: u8 = 3;
const NUMBER: u16 = 9;
/// Loopback network of each test.
const NETWORKS: [u8; 2] = [60, 61];
const PATIENCE: Duration = Duration::from_secs(30);
/// Number of sets that the switch has room for.
const SETS: usize = 16;
/// Number of connections whose hosts send only valid messages.
const CALM: usize = 4;

fn time() -> Duration {
    Duration::from_secs(number_of_environment("STENTOR_FUZZ_SECONDS", 1))
}

fn seeded() -> SplitMix64 {
    SplitMix64(number_of_environment("STENTOR_FUZZ_SEED", 0))
}

fn noise(random: &mut SplitMix64, most: usize) -> Vec<u8> {
    (0..random.index(most)).map(|_| random.word() as u8).collect()
}

fn mutate(random: &mut SplitMix64, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.below(4) {
        let at = random.index(bytes.len());
        match random.below(4) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            1 if !bytes.is_empty() => bytes[at] = [0, 0xff, random.word() as u8][random.index(3)],
            2 => bytes.truncate(at),
            _ => bytes.insert(at.min(bytes.len()), random.word() as u8),
        }
    }
}

/// A switch and hosts that use it.
struct Bed {
    settings: Settings,
    switch: SoftSwitch,
    control: SocketAddr,
    members: Vec<Member>,
    ready: Vec<Option<Ready>>,
    arrived: Vec<Vec<u32>>,
    sent: u32,
    /// Number of completed requests, the control packet among them.
    done: u32,
}

impl Bed {
    fn new(network: u8) -> Bed {
        let address = |last| Ipv4Addr::new(127, 212, network, last);
        let both @ [forward, backward] = [address(250), address(251)];
        let settings = Settings { sets: SETS, ..Settings::new("test", forward, backward) };
        let control = SocketAddr::from((forward, 7300));
        let mut switch = SoftSwitch::open(&settings).unwrap();
        switch.listen(&settings, control, KEY).unwrap();
        let member = |rank: u8| {
            let config = AttachedConfig { life: 1, ..AttachedConfig::new(address(1 + rank), rank, 0, both) };
            Member::dial(Attached::open(config).unwrap(), (NUMBER, HOSTS), "test", KEY, control).unwrap()
        };
        let members: Vec<Member> = (0..HOSTS).map(member).collect();
        let (ready, arrived) = (vec![None; members.len()], vec![Vec::new(); members.len()]);
        let mut bed = Bed { settings, switch, control, members, ready, arrived, sent: 0, done: 0 };
        bed.until("the lines", |bed| bed.members.iter().all(Member::is_ready));
        bed.members.iter_mut().for_each(|member| member.join().unwrap());
        bed.until("a generation", |bed| bed.ready.iter().all(Option::is_some));
        let links: Vec<Link> = (1..usize::from(HOSTS)).map(|n| bed.members[n].host.link(0)).collect();
        bed.members[0].host.control(Operation::Link, &links, 1).unwrap();
        bed
    }

    fn round(&mut self) {
        self.switch.round().unwrap();
        for (n, member) in self.members.iter_mut().enumerate() {
            member.host.drive().unwrap();
            while let Some((completion, receives)) = member.host.poll() {
                assert_eq!(completion.status, Status::Success, "host {n}");
                if receives {
                    self.arrived[n].push(completion.imm.unwrap_or(0));
                    member.host.post_receives(1, 64).unwrap();
                } else {
                    self.done += 1;
                }
            }
            match member.hear().unwrap() {
                None => {}
                Some(Heard::Ready(ready)) => {
                    member.host.post_receives(32, 64).unwrap();
                    self.ready[n] = Some(ready);
                }
                Some(other) => panic!("host {n} receives {other:?}"),
            }
        }
    }

    fn until(&mut self, what: &str, mut holds: impl FnMut(&Bed) -> bool) {
        let since = Instant::now();
        while !holds(self) {
            self.round();
            assert!(since.elapsed() < PATIENCE, "still not: {what}");
        }
    }

    /// Sends another message, and checks that each message arrived once.
    fn send(&mut self) {
        self.sent += 1;
        let request = Request::Send { data: Data::Inline(b"x"), imm: Some(self.sent) };
        self.members[0].host.post(&Work::signalled(2, request)).unwrap();
        self.until("the message", |bed| bed.done == bed.sent + 1);
        let expected: Vec<u32> = (1..=self.sent).collect();
        assert!(self.arrived[1..].iter().all(|all| *all == expected), "each once, in order");
    }

    fn gid(&self) -> u16 {
        self.ready[0].unwrap().gid
    }

    /// Returns whether a packet goes to the forward address, and the packet. The holder or a receiver might send it,
    /// but its source address is a stranger's. Some packets are mutated.
    fn packet(&self, random: &mut SplitMix64, from: SocketAddr) -> (bool, Vec<u8>) {
        let view = self.switch.switch().arrays().view(self.gid()).unwrap();
        let gid = if random.index(4) == 0 { random.word() as u16 } else { self.gid() };
        let rank = [0, 0, 1, random.word() as u8][random.index(4)];
        let mut psn = view.progress.last.plus(random.index(3) as u32);
        let mut payload = vec![0; MAX_CONTROL_BYTES];
        let head = Head {
            operation: [Operation::Link, Operation::Release, Operation::Query][random.index(3)],
            lock_id: view.session.lock_id,
            epoch: view.session.epoch,
            sqpn: view.session.sqpn,
            psn,
            msn: view.progress.last_msn,
        };
        let len = control::emit(&head, &[], &[Link { rank: 1, rkey: 1, base: 0 }], &mut payload).unwrap();
        let reth = Reth { va: CONTROL_VA, rkey: CONTROL_RKEY, bytes: len as u32 };
        let (forward, headers, len) = match random.index(5) {
            0 => (true, Headers::Rc(Message::WriteOnly(reth)), len),
            1 => (true, Headers::Rc(Message::SendOnly), 64),
            2 => (false, Headers::Cnp, 0),
            3 => (true, Headers::Uc(Message::SendOnly), 64),
            _ => {
                // The last of these syndromes would poison the set if the switch accepted it.
                let syndrome = Syndrome::from_byte([0x1f, 0x23, 0x60, 0x62][random.index(4)]);
                let aeth = Aeth { syndrome, msn: view.members[1].msn_out };
                psn = view.members[usize::from(rank % HOSTS)].psn_out.minus(random.index(3) as u32);
                (false, Headers::Response(Response::Acknowledge(aeth)), 0)
            }
        };
        let mut bth = Bth::new(Switch::vrqpn(gid, rank), psn);
        bth.ack_req = true;
        let repr = Repr { bth, headers, payload_bytes: len };
        let mut bytes = vec![0; repr.packet_bytes()];
        repr.emit(&mut bytes).unwrap().copy_from_slice(&payload[..len]);
        let to = if forward { self.settings.forward } else { self.settings.backward };
        Envelope::plain(from.ip(), from.port(), to.into()).unwrap().seal(&mut bytes);
        if random.index(3) == 0 {
            mutate(random, &mut bytes);
        }
        (forward, bytes)
    }
}

#[test]
fn noise_from_strangers_is_counted_and_has_no_effect() {
    let (mut bed, mut random, since) = (Bed::new(NETWORKS[0]), seeded(), Instant::now());
    bed.send();
    let stranger = UdpSocket::bind((Ipv4Addr::new(127, 212, NETWORKS[0], 99), 0)).unwrap();
    let own = stranger.local_addr().unwrap();
    let (mut connections, mut datagrams): (Vec<TcpStream>, u64) = (Vec::new(), 0);
    let mut rounds = 0;
    while since.elapsed() < time() || rounds < 50 {
        // Packets that hosts retransmitted on a busy machine may still wait.
        while bed.switch.round().unwrap() {}
        let before = bed.switch.switch().arrays().clone();
        for _ in 0..1 + random.index(150) {
            let (forward, bytes) = if random.index(3) == 0 {
                (random.index(2) == 0, noise(&mut random, 2000))
            } else {
                bed.packet(&mut random, own)
            };
            let to = if forward { bed.settings.forward } else { bed.settings.backward };
            datagrams += u64::from(stranger.send_to(&bytes, (to, 4791)).is_ok());
        }
        for _ in 0..random.index(8) {
            let Ok(mut stream) = TcpStream::connect(bed.control) else { continue };
            let _ = stream.write_all(&noise(&mut random, 600));
            connections.push(stream);
        }
        let keep = connections.len().min(100);
        connections.drain(..connections.len() - keep);
        for _ in 0..50 {
            bed.switch.round().unwrap();
        }
        assert!(before == *bed.switch.switch().arrays(), "a stranger changed a register");
        bed.send();
        rounds += 1;
    }
    let (counters, admitted) = (bed.switch.switch().counters(), bed.switch.admitted());
    let refused = [Cause::Malformed, Cause::WrongSource, Cause::UnknownSet, Cause::WrongOpcode, Cause::Foreign];
    println!("switch: {rounds} rounds, {datagrams} datagrams of strangers, {admitted:?}, {} messages", bed.sent);
    for cause in refused {
        assert!(counters.of(cause) > 0, "{}", cause.name());
    }
    assert!(admitted.strangers > 50 && admitted.hosts == u64::from(HOSTS), "{admitted:?}");
    assert!(admitted.garbled == 0, "{admitted:?}");
}

/// Returns a message that a host might send about another set.
fn word(random: &mut SplitMix64, address: Ipv4Addr) -> Vec<u8> {
    let attachment = |random: &mut SplitMix64| Attachment {
        ip: [address, Ipv4Addr::from(random.word() as u32)][random.index(2)],
        qpn: random.word() as u32 & 0xff_ffff,
        first_psn: Psn::new(random.word() as u32 & 0xff_ffff),
    };
    let number = NUMBER + 1 + random.index(40) as u16;
    // Most messages have a size at which the set can become complete.
    let size = if random.index(8) > 0 { 2 } else { 1 + random.index(32) as u8 };
    let join = Join {
        number,
        size,
        rank: random.index(size.into()) as u8,
        life: random.index(1 << 20) as u32,
        lease: Duration::from_millis(1 + random.word() % 10_000),
        mtu: [256, 512, 1024, 4096][random.index(4)],
        identified: random.index(8) == 0,
        sends: attachment(random),
        receives: attachment(random),
    };
    let word = if random.index(3) > 0 { ToSwitch::Join(join) } else { ToSwitch::Leave { number, life: join.life } };
    let (bytes, len) = word.encode();
    bytes[..len].to_vec()
}

#[test]
fn hosts_that_send_garbage_are_disconnected_and_bounded() {
    let (mut bed, mut random, since) = (Bed::new(NETWORKS[1]), seeded(), Instant::now());
    bed.send();
    let address = Ipv4Addr::new(127, 212, NETWORKS[1], 98);
    let config = SessionConfig {
        purpose: "switch".to_owned(),
        version: VERSION,
        cluster: "test".to_owned(),
        key: KEY.to_vec(),
        me: Some(ProcessId(40)),
    };
    let (mut lines, mut said, mut ended): (Vec<ControlSession>, u64, u64) = (Vec::new(), 0, 0);
    let mut most = 0;
    while since.elapsed() < time() || ended < 20 || most < 3 {
        if lines.len() < 8 {
            lines.push(ControlSession::dial(&config, address.into(), bed.control).unwrap());
        }
        for (n, line) in lines.iter_mut().enumerate() {
            while line.receive().is_some() {}
            if line.is_ready() && random.index(3) == 0 {
                let mut bytes = word(&mut random, address);
                // The first connections send only valid messages.
                match if n < CALM { usize::MAX } else { random.index(40) } {
                    0 => mutate(&mut random, &mut bytes),
                    // Reverses the bytes with the number of the set. Messages about the hosts' own set are filtered out
                    // below.
                    1 if bytes.len() > 8 => bytes[4..].reverse(),
                    2 => bytes = noise(&mut random, 200),
                    _ => {}
                }
                let own = ToSwitch::decode(&bytes).is_ok_and(|word| match word {
                    ToSwitch::Join(join) => join.number == NUMBER,
                    ToSwitch::Leave { number, .. } => number == NUMBER,
                });
                said += u64::from(!own && line.send(&bytes).is_ok());
            }
        }
        let before = lines.len();
        lines.retain(|line| !line.is_dead() && line.error().is_none());
        ended += (before - lines.len()) as u64;
        if random.index(20) == 0 && lines.len() > CALM {
            let gone = CALM + random.index(lines.len() - CALM);
            lines.swap_remove(gone);
        }
        bed.round();
        // At least half of the sets are kept free.
        let sets = bed.switch.show(&bed.settings, None).sets.len();
        assert!(sets <= SETS.div_ceil(2), "{sets} sets");
        most = most.max(sets);
        assert!(since.elapsed() < time() + PATIENCE, "{said} messages, {ended} connections ended");
    }
    drop(lines);
    bed.send();
    let admitted = bed.switch.admitted();
    println!("switch: {said} messages of hosts, {ended} connections ended, {most} sets, {admitted:?}");
    assert!(admitted.garbled >= 20 && said > 100, "{admitted:?}");
}

#[test]
fn mutated_configuration_is_valid_or_a_located_error() {
    let address = |last| Ipv4Addr::new(127, 0, 1, last);
    let whole = example("prod", address(1), address(2), SocketAddr::from((address(1), 7480)), "file:key");
    // Use the lines that are commented out, too.
    let lines = whole.lines().map(|line| line.strip_prefix('#').unwrap_or(line));
    let is_text = |line: &&str| line.starts_with(' ') && !line.starts_with("  ");
    let whole = lines.filter(|line| !is_text(line)).collect::<Vec<_>>().join("\n");
    Settings::parse(Path::new("switch.toml"), &whole).unwrap();
    let (mut random, since, path) = (seeded(), Instant::now(), Path::new("switch.toml"));
    let (mut good, mut bad) = (0_u64, 0_u64);
    while since.elapsed() < time() || good + bad < 2000 {
        let mut bytes = whole.clone().into_bytes();
        for _ in 0..random.index(4) {
            mutate(&mut random, &mut bytes);
        }
        if random.index(3) == 0 {
            let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
            let (from, to) = (random.index(lines.len()), random.index(lines.len()));
            let mut lines: Vec<&[u8]> = lines.clone();
            lines.swap(from, to);
            bytes = lines.join(&b'\n');
        }
        match Settings::parse(path, &String::from_utf8_lossy(&bytes)) {
            Ok(settings) => {
                good += 1;
                assert!(settings.sets > 0 && settings.forward != settings.backward);
            }
            Err(error) => {
                bad += 1;
                assert!(error.location().starts_with("switch.toml:"), "{}", error.location());
                assert!(!error.remedy().is_empty() && !error.to_string().is_empty());
            }
        }
    }
    println!("switch: {good} configurations, {bad} errors");
    assert!(good > 100 && bad > 100, "{good} good, {bad} bad");
}
