//! Queries to a process at its control address, by programs that have the key but are no process.

use std::io::Write;
use std::net::TcpStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stentor_fabric::ProcessId;
use stentor_fabric_net::ask::{AskConfig, AskError, MAX_ANSWER, ask};

mod asked;

use asked::{Manager, NoTransport, PATIENCE, start};

type Answer = Result<Vec<u8>, AskError>;

fn asking(config: &AskConfig, question: &'static [u8], within: Duration) -> JoinHandle<Answer> {
    let config = config.clone();
    std::thread::spawn(move || ask(&config, question, within))
}

/// Answers every question with `bytes` bytes until `asked` has its answer.
fn answered(cm: &mut Manager, asked: JoinHandle<Answer>, bytes: usize) -> Answer {
    let since = Instant::now();
    while !asked.is_finished() {
        cm.pump(&mut NoTransport);
        while let Some((question, text)) = cm.next_question() {
            assert_eq!(text, b"how");
            cm.answer(question, &vec![7; bytes]);
        }
        assert!(since.elapsed() < PATIENCE, "no answer");
        std::thread::yield_now();
    }
    asked.join().unwrap()
}

#[test]
fn a_program_with_the_key_is_answered_up_to_the_maximum_length() {
    let (mut cm, config) = start();
    for (bytes, come) in [(0, 0), (9, 9), (5000, 5000), (MAX_ANSWER, MAX_ANSWER), (MAX_ANSWER + 9, MAX_ANSWER)] {
        let asked = asking(&config, b"how", PATIENCE);
        assert_eq!(answered(&mut cm, asked, bytes), Ok(vec![7; come]));
    }
    // Several programs at once, each with its own answer.
    let all: Vec<_> = (0..20).map(|_| asking(&config, b"how", PATIENCE)).collect();
    for asked in all {
        assert_eq!(answered(&mut cm, asked, 700), Ok(vec![7; 700]));
    }
    assert_eq!(cm.next_refusal(), None);
}

#[test]
fn a_program_with_another_key_or_target_gets_no_answer() {
    let (mut cm, config) = start();
    let cases: [(&str, AskConfig); 3] = [
        ("key", AskConfig { key: b"yek".to_vec(), ..config.clone() }),
        ("another process", AskConfig { process: ProcessId(0), ..config.clone() }),
        ("cluster", AskConfig { cluster: "d".into(), ..config.clone() }),
    ];
    for (what, strange) in cases {
        let error = answered(&mut cm, asking(&strange, b"how", PATIENCE), 9).unwrap_err();
        assert!(error.to_string().contains(what), "{what}: {error}");
    }
    // A program of another cluster detects the difference by itself, perhaps before its last frame arrives here.
    let (mut refusals, since) = (Vec::new(), Instant::now());
    let told = |refusals: &[String], part: &str| refusals.iter().any(|text| text.contains(part));
    while !told(&refusals, "another key") || !told(&refusals, "of cluster d; here is") {
        assert!(since.elapsed() < PATIENCE, "{refusals:?}");
        cm.pump(&mut NoTransport);
        refusals.extend(std::iter::from_fn(|| cm.next_refusal()).map(|refusal| refusal.to_string()));
    }
    // Other programs are still answered.
    let asked = asking(&config, b"how", PATIENCE);
    assert_eq!(answered(&mut cm, asked, 9), Ok(vec![7; 9]));
}

#[test]
fn a_closed_port_and_a_silent_process_are_distinguished() {
    let (cm, config) = start();
    let since = Instant::now();
    // The kernel accepts the connection, but no thread pumps.
    assert_eq!(ask(&config, b"how", Duration::from_millis(200)), Err(AskError::Silent));
    drop(cm);
    assert_eq!(ask(&config, b"how", Duration::from_millis(200)), Err(AskError::Nobody));
    assert!(since.elapsed() < Duration::from_secs(5), "{:?}", since.elapsed());
}

#[test]
fn a_flood_of_strangers_keeps_no_one_out() {
    let (mut cm, config) = start();
    let mut strangers = Vec::new();
    for n in 0..100_u8 {
        let mut stream = TcpStream::connect(config.at).unwrap();
        let _ = stream.write_all(&[0, 5, b'H', n, n, n, n]);
        strangers.push(stream);
        cm.pump(&mut NoTransport);
    }
    let asked = asking(&config, b"how", PATIENCE);
    assert_eq!(answered(&mut cm, asked, 9), Ok(vec![7; 9]));
}
