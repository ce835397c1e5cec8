//! Fuzzes an endpoint. The adversary is on the network and knows all keys and numbers. No packet, alone or in a run,
//! may cause a panic or access memory that was not granted.
//!
//! Inputs with new effects are kept in `tests/corpus`. These inputs are replayed, and mutations start from them.
//! `STENTOR_FUZZ_SECONDS` is the duration (1 s by default). A failure writes its input to a file, and
//! `STENTOR_FUZZ_INPUT` replays it. To extend the corpus, run
//! `STENTOR_FUZZ_SECONDS=600 cargo test -p stentor-fabric-roce --test fuzz -- --ignored grow`.

#[path = "../common/mod.rs"]
mod common;
mod corpus;
mod generate;
mod script;
mod sockets;
mod victim;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use common::SplitMix64;
use generate::Known;
use script::Script;
use stentor_fabric_roce::endpoint::Counters;
use stentor_testutil::number_of_environment;
use victim::Outcome;

/// Runs an input. Writes it to a file if it fails.
fn run(script: &Script) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| victim::run(script))).unwrap_or_else(|cause| {
        let file = std::env::temp_dir().join(format!("stentor-fuzz-{}.bin", std::process::id()));
        std::fs::write(&file, script.emit()).expect("a folder for temporary files");
        eprintln!("REPRODUCE WITH: STENTOR_FUZZ_INPUT={}", file.display());
        resume_unwind(cause)
    })
}

/// Totals of one fuzzing run.
#[derive(Default)]
struct Sums {
    inputs: u64,
    packets: u64,
    wrote: u64,
    refused: u64,
}

/// Runs mutated inputs until the time has passed. Adds inputs with new features to the population. Panics if an input
/// fails.
fn fuzz(population: &mut Vec<Script>, seen: &mut BTreeSet<u64>, shorten: bool) -> Sums {
    let time = Duration::from_secs(number_of_environment("STENTOR_FUZZ_SECONDS", 1));
    let mut random = SplitMix64(number_of_environment("STENTOR_FUZZ_SEED", 0));
    let (known, mut sums, since) = (Known::new(), Sums::default(), Instant::now());
    // Run a minimum number of inputs, because on a busy machine the time may pass at once.
    while since.elapsed() < time || sums.inputs < 500 {
        let fresh = population.is_empty() || random.one_in(3);
        let script = match fresh {
            true => generate::script(&mut random, &known),
            false => generate::mutate(&mut random, &known, population),
        };
        let outcome = run(&script);
        sums.inputs += 1;
        sums.packets += outcome.packets;
        sums.wrote += u64::from(outcome.wrote);
        sums.refused += u64::from(outcome.counters.access_errors > 0);
        if !outcome.features.is_subset(seen) {
            population.push(if shorten { corpus::shorten(script, seen) } else { script });
            seen.extend(outcome.features);
        }
    }
    sums
}

#[test]
fn adversary_reaches_only_granted_memory() {
    if let Some(file) = std::env::var_os("STENTOR_FUZZ_INPUT") {
        run(&Script::parse(&std::fs::read(&file).expect("STENTOR_FUZZ_INPUT: a file")));
        return;
    }
    let mut population: Vec<_> = corpus::load().iter().map(|bytes| Script::parse(bytes)).collect();
    let mut seen: BTreeSet<_> = population.iter().flat_map(|script| run(script).features).collect();
    let before = seen.len();
    let Sums { inputs, packets, wrote, refused } = fuzz(&mut population, &mut seen, false);
    println!("{packets} packets in {inputs} inputs; {before} features in the corpus, {} more", seen.len() - before);
    assert!(
        wrote > 0 && refused > 0,
        "the packets are not varied enough: {wrote} inputs wrote, {refused} were refused"
    );
}

#[test]
fn corpus_passes_and_covers_every_opcode_and_counter() {
    let inputs = corpus::load();
    let bytes: usize = inputs.iter().map(Vec::len).sum();
    assert!((1..=corpus::MOST_BYTES).contains(&bytes), "{bytes} bytes in {} inputs", inputs.len());
    let (mut opcodes, mut totals, mut runs) = (BTreeSet::new(), vec![0; Counters::default().list().len()], 0);
    for (n, bytes) in inputs.iter().enumerate() {
        let script = Script::parse(bytes);
        assert_eq!(script.emit(), *bytes, "input {n} is encoded differently");
        runs += script.datagrams.iter().filter(|datagram| datagram.packets().len() > 1).count();
        let outcome = run(&script);
        opcodes.extend(outcome.opcodes);
        outcome.counters.list().iter().zip(&mut totals).for_each(|((_, count), total)| *total += count);
    }
    let of_rc_and_uc = (0..=0x14_u8).chain([0x16, 0x17]).chain(0x20..=0x2b).chain([0x81]);
    let absent: Vec<_> = of_rc_and_uc.filter(|opcode| !opcodes.contains(opcode)).collect();
    assert!(absent.is_empty(), "no packet has the opcodes {absent:02x?}");
    let names = Counters::default().list();
    let zero = names.iter().zip(&totals).filter(|(_, total)| **total == 0).map(|((name, _), _)| *name);
    // An adversary cannot cause this error: it occurs only if the victim deregisters its own memory.
    let never: Vec<_> = zero.filter(|name| *name != "operational_errors").collect();
    assert!(never.is_empty(), "never counted: {never:?}");
    assert!(runs > 20, "only {runs} datagrams are runs");
}

#[test]
#[ignore = "changes the corpus: see the top of the file"]
fn grow() {
    let mut population: Vec<_> = corpus::load().iter().map(|bytes| Script::parse(bytes)).collect();
    population.extend(corpus::seeds(&Known::new()));
    let mut seen = BTreeSet::new();
    population.retain(|script| corpus::adds(script, &mut seen));
    let (begun, known) = (population.len(), seen.len());
    let sums = fuzz(&mut population, &mut seen, true);
    let chosen = corpus::choose(population);
    let bytes: usize = chosen.iter().map(|script| script.emit().len()).sum();
    println!(
        "{begun} inputs had {known} features; {} more inputs, now {}; kept: {} inputs, {bytes} bytes",
        sums.inputs,
        seen.len(),
        chosen.len()
    );
    corpus::save(&chosen);
}
