//! In an idle cluster, a message costs exactly the remote writes of the formulas, for each role.

use stentor_multicast::Variant;
use stentor_simulation::{RoleCounts, count_writes};

/// Returns the number of remote writes of one process in a group of `p`, for a message to `g` groups with `n` processes
/// in total.
fn formula(variant: Variant, is_leader: bool, g: u64, p: u64, n: u64) -> u64 {
    match (variant, is_leader) {
        (_, false) => n - 1,
        (Variant::V1, true) => (g - 1) + (p - 1) + (p - 1) * (g - 1) + (n - 1),
        (Variant::V2, true) => {
            let vector = if g > 1 { p - 1 } else { 0 };
            let own_vote = if p == 1 { n - 1 } else { 0 };
            (g - 1) + (p - 1) + vector + own_vote
        }
    }
}

fn check(sizes: &[usize], variant: Variant) {
    // The cluster has one group more than the message has destinations. Its processes must not write.
    let bystanders = [sizes, &[3]].concat();
    let counts = count_writes(&bystanders, sizes.len(), variant).expect("a possible cluster");
    let (g, n) = (sizes.len() as u64, sizes.iter().sum::<usize>() as u64);
    let mut total = 0;
    for RoleCounts { group, is_leader, counts, posts, credits } in &counts {
        let expected = match group {
            None => n,
            Some(group) if *group >= sizes.len() => 0,
            Some(group) => formula(variant, *is_leader, g, sizes[*group] as u64, n),
        };
        let what = format!("{variant:?} {sizes:?}, group {group:?}, leader {is_leader}");
        assert_eq!(counts.protocol_writes(), expected, "{what}");
        // The simulated NIC's own count agrees, so the node counts all of its writes.
        assert_eq!(*posts, expected + credits, "{what}");
        if group.is_some_and(|group| group >= sizes.len()) {
            assert_eq!(*posts, 0, "M7: {what}");
        }
        total += counts.protocol_writes();
    }
    if variant == Variant::V2 && sizes == [3, 3] {
        assert_eq!(total, 36, "the sum of the formulas");
    }
    if variant == Variant::V1 && sizes == [3, 3] {
        assert_eq!(total, 46, "the sum of the formulas");
    }
    if variant == Variant::V2 && sizes == [1, 3] {
        assert_eq!(total, 19, "the sum of the formulas");
    }
}

#[test]
fn writes_of_every_role_match_the_formulas() {
    for variant in [Variant::V1, Variant::V2] {
        for g in [1, 2, 3, 5] {
            for p in [1, 3, 5] {
                check(&vec![p; g], variant);
            }
        }
        check(&[1, 3], variant);
        check(&[5, 1, 3], variant);
    }
}
