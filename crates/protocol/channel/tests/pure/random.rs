//! Properties that hold in random orders of all events.

use proptest::prelude::*;
use stentor_channel::{Cause, Config, Scheme};
use stentor_fabric::Status;

use crate::pair::{Action, Pair, cause};

/// Runs at most `steps` steps, or fewer if the run ends. The first actions are chosen by `choices`, and later ones by
/// the step number. Returns the number of steps.
fn run_some(pair: &mut Pair, choices: &[u16], steps: usize) -> usize {
    for step in 0..steps {
        let actions = pair.actions();
        if actions.is_empty() || pair.wrong.is_some() {
            return step;
        }
        let choice = choices.get(step).copied().unwrap_or(step as u16);
        pair.act(actions[usize::from(choice) % actions.len()]);
    }
    steps
}

/// Runs to the end. Returns the number of steps.
pub(crate) fn run(pair: &mut Pair, choices: &[u16]) -> usize {
    let steps = run_some(pair, choices, 100_000);
    assert!(steps < 100_000, "the run does not end: {pair:#?}");
    steps
}

fn config() -> impl Strategy<Value = Config> {
    let schemes = prop_oneof![Just(Scheme::LengthPayload), Just(Scheme::Eager)];
    let first = prop_oneof![Just(0), Just(u32::MAX), Just(u32::MAX - 3), Just(u32::MAX / 2)];
    (schemes, 1_u32..6, 1_u32..6, first, prop_oneof![Just(0_u32), Just(8), Just(64)]).prop_map(
        |(scheme, lengths, pieces, first_sequence, eager_bytes)| {
            Config { lengths, pieces, first_sequence, eager_bytes, piece_bytes: 64, ..Config::with(scheme) }.normal()
        },
    )
}

fn messages() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![Just(0), Just(1), Just(8), Just(64), Just(65), 0_u64..1000], 0..12)
}

fn choices() -> impl Strategy<Value = Vec<u16>> {
    prop::collection::vec(any::<u16>(), 0..600)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn everything_arrives_in_order_and_both_ends_close(
        config in config(), there in messages(), back in messages(), ordered: bool, choices in choices()
    ) {
        let mut pair = Pair::new(&config, [&there, &back], ordered);
        run(&mut pair, &choices);
        prop_assert_eq!(&pair.wrong, &None);
        prop_assert_eq!(pair.unfinished(), None);
    }

    #[test]
    fn both_ends_fail_and_drain_when_the_queue_pair_breaks(
        config in config(), there in messages(), back in messages(), choices in choices(),
        when in 0_usize..300, which in 0_usize..2, place in 0_usize..4,
    ) {
        let mut pair = Pair::new(&config, [&there, &back], false);
        run_some(&mut pair, &choices, when);
        let before = [pair.ends[0].closed, pair.ends[1].closed];
        let fails = pair.ends[which].sends() > place;
        pair.act(Action::Break(which, place));
        run(&mut pair, &choices);
        pair.gone();
        prop_assert_eq!(&pair.wrong, &None);
        for (here, end) in pair.ends.iter().enumerate() {
            prop_assert!(end.closed && end.connection.lent() == 0, "end {} is not closed", here);
            let cause = cause(end);
            prop_assert!(before[here] || cause.is_some() || end.connection.has_ended());
            if let Some(cause) = cause {
                let known = matches!(cause, Cause::Broken | Cause::Fabric(Status::Flushed | Status::RetryExceeded));
                prop_assert!(known, "{:?}", cause);
                prop_assert_eq!(end.failed.unwrap().connection, 5);
            }
        }
        prop_assert!(!fails || before[which] || cause(&pair.ends[which]).is_some());
    }

    #[test]
    fn aborted_end_drains_and_informs_the_peer(
        config in config(), there in messages(), back in messages(), choices in choices(),
        when in 0_usize..200, which in 0_usize..2,
    ) {
        let mut pair = Pair::new(&config, [&there, &back], false);
        run_some(&mut pair, &choices, when);
        let over = pair.ends[which].connection.is_over();
        pair.act(Action::Abort(which));
        run(&mut pair, &choices);
        prop_assert_eq!(&pair.wrong, &None);
        prop_assert!(pair.ends[which].closed && pair.ends[which].connection.lent() == 0);
        let other = &pair.ends[1 - which];
        prop_assert!(over || other.closed, "the peer was not informed");
        prop_assert_eq!(other.connection.lent(), 0);
    }

    /// Arriving messages are discarded, which must not block their sender.
    #[test]
    fn closing_end_discards_messages_and_both_ends_close(
        config in config(), there in messages(), back in messages(), choices in choices(),
        when in 0_usize..200, which in 0_usize..2,
    ) {
        let mut pair = Pair::new(&config, [&there, &back], false);
        run_some(&mut pair, &choices, when);
        let lengths = [there.len() as u64, back.len() as u64];
        pair.act(Action::Close(which));
        run(&mut pair, &choices);
        prop_assert_eq!(&pair.wrong, &None);
        for end in &pair.ends {
            prop_assert!(end.closed && end.failed.is_none() && end.connection.lent() == 0);
        }
        prop_assert_eq!(pair.ends[1 - which].written, lengths[1 - which], "the end that closed blocked the writes of the other end");
    }
}
