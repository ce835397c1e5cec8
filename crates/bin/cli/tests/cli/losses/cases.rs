//! The ways in which groups lose their memory.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::Draw;
use super::scene::{Scene, members};

/// The times of a run without errors.
pub(super) struct Found {
    /// Time until all groups work, from the operator's reset, from the end of the last process that remembers the
    /// group, or from the last restart.
    pub(super) released: Duration,
    /// Time from the same moment until all messages in flight are settled.
    pub(super) settled: Duration,
    /// The choices of the seed, as text.
    pub(super) what: String,
}

type Case = fn(&mut Draw) -> Result<Found, String>;

/// All cases, in the order of seeds.
pub(super) const CASES: [(&str, Case); 8] = [
    ("a group of three", group_of_three_loses_memory),
    ("the only group", only_group_loses_memory),
    ("a member stands still", a_silent_member),
    ("one process is left", one_process_keeps_memory),
    ("restarted too fast", group_restarts_too_fast),
    ("the only group, too fast", only_group_restarts_too_fast),
    ("everything at once", everything),
    ("left to the operator", left_to_the_operator),
];

/// Starts three groups with traffic among them.
fn with_traffic(draw: &mut Draw) -> Result<Scene, String> {
    let mut scene = Scene::begin(draw, 3, "")?;
    scene.until_works()?;
    for to in ["g1,g2", "g2,g3", "g1,g2,g3", "g3"] {
        scene.client(to);
    }
    std::thread::sleep(Duration::from_millis(300));
    draw.pause(700);
    Ok(scene)
}

/// Waits until all groups work and all messages are settled, and judges the histories.
fn concluded(scene: &mut Scene, since: Instant, anew: &[usize], several: bool, what: String) -> Result<Found, String> {
    scene.until_works()?;
    let released = since.elapsed();
    scene.conclude(anew)?;
    let settled = since.elapsed();
    scene.judge(several)?;
    Ok(Found { released, settled, what })
}

/// Waits until all members of a group report which process remembers the group, and the remedy.
fn until_refused(scene: &mut Scene, group: usize, who: &[String]) -> Result<(), String> {
    let name = format!("g{group}");
    let (all, remedy) = (
        format!("all members of {name} have no memory of it, and it does not begin: "),
        format!("`stentor group reset --group {name}`"),
    );
    scene.until_said(who, &[&all, " remembers incarnation ", &remedy])?;
    let shown = scene.command(&["leader", "show"]);
    if shown.code == 1 && shown.stdout.contains(" remembers incarnation ") && shown.stdout.contains(&remedy) {
        Ok(())
    } else {
        Err(format!("leader show does not say why: {}", shown.stdout))
    }
}

fn start_all(scene: &mut Scene, draw: &mut Draw, names: &[String]) {
    for name in names {
        scene.start(name);
        if draw.below(3) == 0 {
            draw.pause(150);
        }
    }
}

/// All members of one group lose their memory while the other groups continue. In some seeds a member of another group
/// is suspended.
fn group_of_three_loses_memory(draw: &mut Draw) -> Result<Found, String> {
    let mut scene = with_traffic(draw)?;
    let group = 1 + draw.below(3) as usize;
    let lost = members(group);
    let others: Vec<String> = scene.all().into_iter().filter(|name| !lost.contains(name)).collect();
    let silent = draw.coin().then(|| others[draw.below(6) as usize].clone());
    if let Some(silent) = &silent {
        scene.signal(silent, Signal::STOP);
        draw.pause(900);
    }
    scene.kill(&lost);
    start_all(&mut scene, draw, &lost);
    until_refused(&mut scene, group, &lost)?;
    let since = Instant::now();
    scene.reset(group, true)?;
    scene.until_said(
        &lost,
        &[&format!("warn g{group}."), &format!("an operator reset g{group}: it begins from nothing")],
    )?;
    let awake: Vec<String> = others.into_iter().filter(|name| Some(name) != silent.as_ref()).collect();
    scene.until_said(&awake, &[&format!("g{group} began anew in incarnation "), "clients that multicast to"])?;
    scene.until_works()?;
    let what = format!("g{group} lost, {} still", silent.as_deref().unwrap_or("nobody stands"));
    if let Some(silent) = silent {
        scene.signal(&silent, Signal::CONT);
    }
    concluded(&mut scene, since, &[group], false, what)
}

/// All members of the only group lose their memory, while a running client remembers the group.
fn only_group_loses_memory(draw: &mut Draw) -> Result<Found, String> {
    let mut scene = Scene::begin(draw, 1, "")?;
    scene.until_works()?;
    scene.client("g1");
    std::thread::sleep(Duration::from_millis(300));
    draw.pause(500);
    let all = scene.all();
    scene.kill(&all);
    start_all(&mut scene, draw, &all);
    until_refused(&mut scene, 1, &all)?;
    let (since, resets) = (Instant::now(), draw.coin());
    if resets {
        scene.reset(1, true)?;
    } else {
        scene.kill_clients();
        scene.until_said(&all, &["warn g1.", "g1 begins from nothing", "incarnation 2-"])?;
    }
    let what = format!("the client {}", if resets { "lives on" } else { "is ended" });
    concluded(&mut scene, since, &[1], true, what)
}

/// Two members of a group lose their memory, and the third, which has it, is suspended.
fn a_silent_member(draw: &mut Draw) -> Result<Found, String> {
    let mut scene = with_traffic(draw)?;
    let mut lost = members(1);
    let silent = lost.remove(draw.below(3) as usize);
    scene.signal(&silent, Signal::STOP);
    draw.pause(500);
    scene.kill(&lost);
    start_all(&mut scene, draw, &lost);
    scene.until_said(
        &lost,
        &["g1 does not begin before all its members are there: ", &silent, "kill -CONT", "group reset --group g1"],
    )?;
    let (since, without) = (Instant::now(), draw.coin());
    if without {
        scene.reset(1, true)?;
        scene.until_works()?;
        scene.signal(&silent, Signal::CONT);
        scene.until("ended", |scene| scene.has_ended(&silent))?;
        scene.until_said(std::slice::from_ref(&silent), &["the group of ", "was reset and goes on in incarnation "])?;
        scene.start(&silent);
    } else {
        scene.signal(&silent, Signal::CONT);
        scene.until_said(
            &lost,
            &["2 of 3 members of g1 have no memory of it, so nobody is taken in: stop ", &silent, "group reset"],
        )?;
        scene.reset(1, false)?;
        scene.until_said(
            std::slice::from_ref(&silent),
            &["warn ", "an operator reset g1: it goes on in incarnation "],
        )?;
    }
    let what = format!("{silent}, {} its state", if without { "without" } else { "with" });
    concluded(&mut scene, since, &[1], false, what)
}

/// Only one process has any memory, and it is suspended while all others start.
fn one_process_keeps_memory(draw: &mut Draw) -> Result<Found, String> {
    let mut scene = with_traffic(draw)?;
    let left = format!("g2.{}", 1 + draw.below(3));
    scene.signal(&left, Signal::STOP);
    draw.pause(500);
    scene.kill_clients();
    let lost: Vec<String> = scene.all().into_iter().filter(|name| *name != left).collect();
    scene.kill(&lost);
    start_all(&mut scene, draw, &lost);
    // The other groups begin, because an unreachable process does not prevent that.
    let own: Vec<String> = members(2).into_iter().filter(|name| *name != left).collect();
    scene.until_said(&own, &["g2 begins when all its members are there: ", &left])?;
    scene.until_said(&[members(1), members(3)].concat(), &["epoch "])?;
    scene.signal(&left, Signal::CONT);
    scene.until_said(
        &own,
        &["2 of 3 members of g2 have no memory of it, so nobody is taken in", &left, "group reset --group g2"],
    )?;
    let (since, empty) = (Instant::now(), draw.coin());
    scene.reset(2, empty)?;
    if empty {
        scene.until("ended or taken in", |scene| scene.has_ended(&left) || scene.show()["ok"] == true)?;
        if scene.has_ended(&left) {
            scene.start(&left);
        }
    }
    let what = format!("{left}, {} its state", if empty { "without" } else { "with" });
    concluded(&mut scene, since, &[], false, what)
}

/// Once or twice, kills each member of the first group in turn and starts it again at once. Returns the pause between
/// two members, in milliseconds.
fn restart_each(scene: &mut Scene, draw: &mut Draw) -> u64 {
    let gap = [0, 5, 20, 60, 200][draw.below(5) as usize];
    let mut order = members(1);
    order.rotate_left(draw.below(3) as usize);
    for _ in 0..=draw.below(2) {
        for name in &order {
            scene.kill(std::slice::from_ref(name));
            scene.start(name);
            std::thread::sleep(Duration::from_millis(gap));
        }
    }
    gap
}

/// Waits until the group works again or its members report what an operator has to do. Returns whether it works.
fn works_or_asks_for_help(scene: &mut Scene) -> Result<bool, String> {
    let mut works = false;
    let told = |text: &str| text.contains("`stentor group reset --group g1`");
    scene.until("back or told", |scene| {
        works = scene.show()["ok"] == true;
        works || members(1).iter().any(|name| told(&scene.said(name, "err")))
    })?;
    Ok(works)
}

/// A supervisor restarts the members of a group one after another, while other groups remember it.
fn group_restarts_too_fast(draw: &mut Draw) -> Result<Found, String> {
    let mut scene = with_traffic(draw)?;
    let gap = restart_each(&mut scene, draw);
    let (since, works) = (Instant::now(), works_or_asks_for_help(&mut scene)?);
    let mut what = format!("{gap} ms between, it came back");
    let (mut since, mut anew) = (since, vec![]);
    if !works {
        // One member may still have the state, or none.
        since = Instant::now();
        let kept = scene.reset(1, false).is_ok();
        if !kept {
            scene.reset(1, true)?;
        }
        (anew, what) =
            (vec![1], format!("{gap} ms between, reset {}", if kept { "with a state" } else { "with nothing" }));
        std::thread::sleep(Duration::from_millis(500));
        for name in members(1) {
            if scene.has_ended(&name) {
                scene.start(&name);
            }
        }
    }
    concluded(&mut scene, since, &anew, false, what)
}

/// Like `group_restarts_too_fast`, but there is no other group. If the group does not come back, the members that remember it are
/// killed and started again, and the group begins anew.
fn only_group_restarts_too_fast(draw: &mut Draw) -> Result<Found, String> {
    let mut scene = Scene::begin(draw, 1, "")?;
    scene.until_works()?;
    scene.client("g1");
    std::thread::sleep(Duration::from_millis(500));
    let gap = restart_each(&mut scene, draw);
    let (mut since, works) = (Instant::now(), works_or_asks_for_help(&mut scene)?);
    let what = format!("{gap} ms between, it {}", if works { "came back" } else { "began anew" });
    if !works {
        since = Instant::now();
        scene.kill_clients();
        let shown = scene.show();
        let remembers = |member: &&serde_json::Value| member["standing"]["joining"] == false;
        let left: Vec<String> = shown["members"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(remembers)
            .filter_map(|member| member["id"].as_str().map(str::to_owned))
            .collect();
        scene.kill(&left);
        left.iter().for_each(|name| scene.start(name));
    }
    // The order in which the members came back decides whether the histories belong to one run.
    scene.until_works()?;
    let released = since.elapsed();
    scene.conclude(&[1])?;
    let settled = since.elapsed();
    scene.judge(false).or_else(|_| scene.judge(true))?;
    Ok(Found { released, settled, what })
}

/// No process remembers any group, so all groups begin anew by themselves.
fn everything(draw: &mut Draw) -> Result<Found, String> {
    let mut scene = with_traffic(draw)?;
    let all = scene.all();
    if draw.coin() {
        scene.kill_clients();
        scene.kill(&all);
    } else {
        scene.kill(&all);
        scene.kill_clients();
    }
    let since = Instant::now();
    start_all(&mut scene, draw, &all);
    scene.until_works()?;
    for name in &all {
        let said = scene.said(name, "err");
        if !said.contains(" begins from nothing: its deliveries are numbered from 1")
            && !said.contains("taken in by its group")
        {
            return Err(format!("{name} does not say that it began: {said}"));
        }
    }
    concluded(&mut scene, since, &[1, 2, 3], true, String::new())
}

/// The configuration leaves the decision to the operator, also at the first start.
fn left_to_the_operator(draw: &mut Draw) -> Result<Found, String> {
    let mut scene = Scene::begin(draw, 2, "total_loss = \"refuse\"\n")?;
    let all = scene.all();
    let refused =
        ["it does not begin: total_loss = \"refuse\" leaves it to the operator; `stentor group reset --group "];
    scene.until_said(&all, &refused)?;
    let reset = |scene: &mut Scene| (1..=2).try_for_each(|group| scene.reset(group, true).map(drop));
    reset(&mut scene)?;
    scene.until_works()?;
    scene.client("g1,g2");
    draw.pause(500);
    scene.kill_clients();
    scene.kill(&all);
    start_all(&mut scene, draw, &all);
    scene.until_said(&all, &refused)?;
    let since = Instant::now();
    reset(&mut scene)?;
    concluded(&mut scene, since, &[], true, String::new())
}
