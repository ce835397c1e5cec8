//! Mutants of the state machine. For each mutant here, some order of events violates the property that it breaks, or
//! the number of messages grows.

use stentor_channel::{Config, Mutant, Scheme};

use crate::exhaustive::{config, explore};
use crate::pair::Pair;
use crate::random::run;

/// Runs a mutant in 400 pseudo-random orders. Returns, for each run that goes wrong, the first violation or the
/// unfinished work.
fn found(mutant: Mutant, config: Config, messages: [&[u64]; 2]) -> impl Iterator<Item = String> {
    (0..400_u64).filter_map(move |seed| {
        let mut pair = Pair::new(&Config { mutant, ..config }.normal(), messages, false);
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let choices: Vec<u16> = (0..600)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 40) as u16
            })
            .collect();
        run(&mut pair, &choices);
        pair.wrong.clone().or_else(|| pair.unfinished())
    })
}

/// Checks that some order of events leads to the expected violation. In other orders the peer may detect an error first
/// and abort.
fn finds(mutant: Mutant, expected: &str) {
    let config = Config { lengths: 6, pieces: 6, piece_bytes: 64, eager_bytes: 8, ..Config::default() };
    let messages: [&[u64]; 2] = [&[0, 5, 8, 65, 7, 129, 200, 1, 2, 3, 0, 64], &[9, 10, 1]];
    assert_eq!(found(Mutant::None, config, messages).next(), None);
    let mut found = found(mutant, config, messages).peekable();
    let first = found.peek().cloned();
    assert!(found.any(|wrong| wrong.starts_with(expected)), "{mutant:?} was found only as {first:?}");
}

#[test]
fn mutants_that_assume_an_order_are_found() {
    finds(Mutant::PostingOrder, "C1");
    finds(Mutant::ArrivalOrder, "C1");
    finds(Mutant::CallbacksAsTheyCome, "C2");
}

#[test]
fn mutants_that_ignore_credits_are_found() {
    finds(Mutant::NoCredits, "C3");
    finds(Mutant::CreditBeforeReceive, "C3");
}

#[test]
fn mutant_that_closes_early_is_found() {
    finds(Mutant::CloseFreesEarly, "C4");
}

/// With the mutant, two pieces have the same sequence. A receive matches the later piece, which is read in place of the
/// earlier one.
#[test]
fn mutant_with_early_sequence_wrap_is_found() {
    finds(Mutant::SequenceWraps, "C1");
}

#[test]
fn exhaustive_search_finds_mutants() {
    for (mutant, expected) in [(Mutant::ArrivalOrder, "C1"), (Mutant::CallbacksAsTheyCome, "C2")] {
        let config = Config { mutant, ..config(Scheme::Eager, 2, 2) };
        let mut pair = Pair::new(&config, [&[0, 1], &[]], false);
        pair.prompt_controls = true;
        let wrong = explore(pair).expect_err("the mutant violates a property");
        assert!(wrong.starts_with(expected), "{mutant:?}: {wrong}");
    }
}

/// Returns the number of messages of the fabric, control messages included, for four short messages in one fixed order
/// of events.
fn sends(mutant: Mutant) -> u64 {
    let config = Config { mutant, ..config(Scheme::Eager, 4, 4) };
    let mut pair = Pair::new(&config, [&[8, 8, 8, 8], &[]], true);
    let mut sent = 0;
    loop {
        let actions = pair.actions();
        let Some(action) = actions.first() else { return sent };
        sent += u64::from(matches!(action, crate::pair::Action::Arrive(..)));
        pair.act(*action);
    }
}

#[test]
fn mutants_that_add_latency_send_more_messages() {
    let usual = sends(Mutant::None);
    assert_eq!(sends(Mutant::NeverInline), usual + 4, "a payload for each of four short messages");
    assert!(sends(Mutant::OneAhead) > usual, "the mutant needs more control messages for credits");
}

/// Every mutant has a row in the table of hazards, and every mutant that the table names exists.
#[test]
fn table_of_hazards_names_each_mutant() {
    let table = include_str!("../../../../../docs/hazards.md").split("## The channel").nth(1).unwrap();
    let rows: Vec<_> = table.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| ")).collect();
    let seen_by = |row: &str| row.trim_end_matches('|').rsplit(" | ").next().unwrap().to_owned();
    let named = |mutant: &Mutant| rows.iter().any(|row| seen_by(row).contains(&format!("mutant `{}`", mutant.name())));
    let unnamed: Vec<_> = Mutant::ALL.iter().filter(|mutant| **mutant != Mutant::None && !named(mutant)).collect();
    assert!(unnamed.is_empty(), "{unnamed:?}");
    for row in &rows[1..] {
        let mut words = seen_by(row)
            .split("mutant `")
            .skip(1)
            .map(|rest| rest.split('`').next().unwrap().to_owned())
            .collect::<Vec<_>>();
        words.retain(|name| Mutant::named(name).is_none());
        assert!(words.is_empty(), "mutants {words:?} do not exist: {row}");
        assert!(
            !seen_by(row).contains("unseen |") && !seen_by(row).starts_with("unseen"),
            "no test detects this hazard: {row}"
        );
    }
}
