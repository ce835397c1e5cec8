//! Topological sort of a graph, and the search for a cycle if the graph cannot be sorted. Nodes are numbers from 0.

/// Returns the nodes in an order that agrees with all edges. Nodes on cycles or after them are missing. `before` is the
/// number of edges into each node, `after` returns the targets of the edges from a node. This is Kahn's algorithm,
/// which is linear.
pub(crate) fn sorted<I: Iterator<Item = u32>>(mut before: Vec<u32>, after: impl Fn(u32) -> I) -> Vec<u32> {
    let mut sorted: Vec<u32> = (0..before.len() as u32).filter(|node| before[*node as usize] == 0).collect();
    sorted.reserve(before.len() - sorted.len());
    let mut at = 0;
    while at < sorted.len() {
        for to in after(sorted[at]) {
            before[to as usize] -= 1;
            if before[to as usize] == 0 {
                sorted.push(to);
            }
        }
        at += 1;
    }
    sorted
}

/// Returns for each of `count` nodes whether it is missing among the sorted ones.
pub(crate) fn left_over(sorted: &[u32], count: usize) -> Vec<bool> {
    let mut left = vec![true; count];
    sorted.iter().for_each(|node| left[*node as usize] = false);
    left
}

/// Returns a node on some cycle. Each node that the sort left over has a predecessor that is left over, so following
/// predecessors must repeat a node.
pub(crate) fn on_a_cycle<I: Iterator<Item = u32>>(left: &[bool], after: impl Fn(u32) -> I) -> Option<u32> {
    let mut before = vec![0; left.len()];
    let nodes = || (0..left.len() as u32).filter(|node| left[*node as usize]);
    for from in nodes() {
        after(from).for_each(|to| before[to as usize] = from);
    }
    let mut at = nodes().next()?;
    let mut seen = vec![false; left.len()];
    while !std::mem::replace(&mut seen[at as usize], true) {
        at = before[at as usize];
    }
    Some(at)
}
