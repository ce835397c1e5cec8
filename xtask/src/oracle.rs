//! The oracle for refactorings: compares hashes of the behaviour of simulated seeds with recorded hashes. The same runs
//! also serve as the simulations under failures: every property must hold in them, and every fault of a profile must
//! happen.
//!
//! A seed determines everything in a simulation, so code that behaves the same has the same hashes. The recorded hashes
//! are data, one line per seed. If a change of the code changes no hash, the recorded runs behave as before.
//! `docs/oracle.md` lists the hashed and the excluded parts.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use stentor_testutil::TempDir;

use crate::campaign::{self, Simulated};
use crate::cargo::{Context, capture};
use crate::programs;
use crate::step::Outcome;

/// The folder of the recorded hashes from the repository root. It has one file for each simulation.
const FOLDER: &str = "crates/verify/simulation/oracle";
/// The name in place of the profile for a simulation without profiles.
const NO_PROFILE: &str = "-";
/// The simulations with their profiles and the number of seeds of each profile.
const SIMULATIONS: [(&str, &[(&str, u64)]); 4] = [
    (
        "multicast",
        &[
            ("all", 300),
            ("calm", 300),
            ("failover", 300),
            ("partition", 300),
            ("clients", 300),
            ("rings", 300),
            ("rejoins", 300),
            ("states", 100),
            ("stops", 300),
            ("clocks", 300),
            ("forgets", 300),
        ],
    ),
    ("neb", &[("usual", 300), ("harsh", 300)]),
    ("channel", &[(NO_PROFILE, 300)]),
    ("switch", &[(NO_PROFILE, 300)]),
];
/// Number of differing seeds that are listed for each profile.
const NAMED: usize = 8;

/// Checks that every property holds for every seed, every fault of a profile happens, and all seeds behave as recorded.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let mut problems = Vec::new();
    // All hashes are compared, even if other checks fail.
    let judged = RefCell::new(Vec::new());
    let judge = |simulation: &str, profile: &str, found: &Simulated, seeds: u64| {
        if let Err(problem) = campaign::judge(simulation, profile, found, seeds) {
            judged.borrow_mut().push(format!("{simulation}, profile {profile}: {problem:#}"));
        }
    };
    for (simulation, now) in simulate_all(context, judge)? {
        let path = path(context, simulation);
        let text = fs::read_to_string(&path).with_context(|| format!("nothing is recorded in {}", path.display()))?;
        let recorded = Hashes::parse(&text).with_context(|| format!("{} cannot be read", path.display()))?;
        println!("{simulation}: {} seeds", now.seeds.len());
        problems.extend(differences(simulation, &recorded, &now));
    }
    let judged = judged.into_inner();
    ensure!(judged.is_empty(), "{}", [judged, problems].concat().join("\n"));
    if problems.is_empty() {
        return Ok(Outcome::Passed);
    }
    bail!(
        "the behaviour of seeds has changed:\n{}\nCompare the transcript of a seed with that of a build without the change. If the \
         change is intended, run `cargo xtask oracle --record`, and explain the new record in its commit",
        problems.join("\n")
    )
}

/// Records the behaviour of all seeds, and prints the seeds whose behaviour has changed.
pub(crate) fn record(context: &Context) -> Result<()> {
    for (simulation, now) in simulate_all(context, |_, _, _, _| ())? {
        let path = path(context, simulation);
        let before = fs::read_to_string(&path).ok();
        let before = before.and_then(|text| Hashes::parse(&text).ok()).unwrap_or_default();
        let changes = differences(simulation, &before, &now);
        if changes.is_empty() {
            println!("{simulation}: {} seeds, as before", now.seeds.len());
            continue;
        }
        println!("{}", changes.join("\n"));
        fs::create_dir_all(context.root.join(FOLDER))?;
        fs::write(&path, now.text(simulation)).with_context(|| format!("cannot write {}", path.display()))?;
        println!("wrote {}", path.display());
    }
    Ok(())
}

fn path(context: &Context, simulation: &str) -> PathBuf {
    context.root.join(FOLDER).join(simulation).with_extension("txt")
}

/// Runs all seeds with the optimised command. Calls `judge` for each profile, with the simulation, the profile's name,
/// the findings and the number of seeds.
fn simulate_all(context: &Context, judge: impl Fn(&str, &str, &Simulated, u64)) -> Result<Vec<(&'static str, Hashes)>> {
    let (program, scratch) = (programs::stentor(context)?, TempDir::new());
    let mut all = Vec::new();
    for (simulation, profiles) in SIMULATIONS {
        let mut hashes = Hashes::default();
        for (profile, seeds) in profiles {
            let (found, text) = simulate(&program, &scratch, simulation, profile, *seeds)?;
            judge(simulation, profile, &found, *seeds);
            hashes.add(profile, &text)?;
        }
        all.push((simulation, hashes));
    }
    Ok(all)
}

/// Runs the seeds of a profile. Returns the command's findings and the hashes that it wrote.
fn simulate(
    program: &Path,
    scratch: &Path,
    simulation: &str,
    profile: &str,
    seeds: u64,
) -> Result<(Simulated, String)> {
    let path = scratch.join("hashes");
    let mut command = Command::new(program);
    command.args(["sim", simulation, "--json", "--seeds", &format!("0..{seeds}")]);
    if profile != NO_PROFILE {
        command.args(["--profile", profile]);
    }
    let (_, said) = capture(command.arg("--hashes").arg(&path))?;
    let text =
        fs::read_to_string(&path).with_context(|| format!("the command wrote no hashes; it printed {said:?}"))?;
    fs::remove_file(&path)?;
    let count = text.lines().count() as u64;
    ensure!(count == seeds + 1, "{simulation} wrote {count} lines for {seeds} seeds of profile {profile}");
    let found = serde_json::from_str(&said).with_context(|| format!("the command printed {said:?}"))?;
    Ok((found, text))
}

/// The hashes of the seeds of one simulation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Hashes {
    /// Names of the transcripts.
    transcripts: Vec<String>,
    /// The hash of each transcript, by profile and seed.
    seeds: BTreeMap<(String, u64), Vec<String>>,
}

impl Hashes {
    /// Adds the seeds of a profile from the command's output: a line with names, then a line for each seed.
    fn add(&mut self, profile: &str, text: &str) -> Result<()> {
        let mut lines = text.lines();
        let names = lines.next().and_then(|line| line.strip_prefix("seed ")).context("the names are missing")?;
        let names: Vec<String> = names.split_whitespace().map(str::to_owned).collect();
        ensure!(self.seeds.is_empty() || self.transcripts == names, "profile {profile} has the transcripts {names:?}");
        self.transcripts = names;
        lines.try_for_each(|line| self.add_seed(profile, line))
    }

    fn add_seed(&mut self, profile: &str, line: &str) -> Result<()> {
        let mut words = line.split_whitespace();
        let seed = words.next().and_then(|word| word.parse().ok()).with_context(|| format!("no seed in {line:?}"))?;
        let hashes: Vec<String> = words.map(str::to_owned).collect();
        ensure!(hashes.len() == self.transcripts.len(), "{line:?} does not have {} hashes", self.transcripts.len());
        let before = self.seeds.insert((profile.to_owned(), seed), hashes);
        ensure!(before.is_none(), "seed {seed} of profile {profile} is listed twice");
        Ok(())
    }

    /// Parses a file of recorded hashes: comments, a line with names, then a line for each profile and seed.
    fn parse(text: &str) -> Result<Hashes> {
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let names =
            lines.next().and_then(|line| line.strip_prefix("profile seed ")).context("the names are missing")?;
        let transcripts = names.split_whitespace().map(str::to_owned).collect();
        let mut hashes = Hashes { transcripts, seeds: BTreeMap::new() };
        for line in lines {
            let (profile, rest) = line.split_once(' ').with_context(|| format!("no profile in {line:?}"))?;
            hashes.add_seed(profile, rest)?;
        }
        Ok(hashes)
    }

    /// Returns the file contents that [`parse`](Hashes::parse) parses.
    fn text(&self, simulation: &str) -> String {
        let mut text = format!(
            "# What the seeds of `stentor sim {simulation}` do: hashes of their transcripts. See docs/oracle.md.\n\
             # Written by `cargo xtask oracle --record`.\nprofile seed {}\n",
            self.transcripts.join(" ")
        );
        for ((profile, seed), hashes) in &self.seeds {
            let _ = writeln!(text, "{profile} {seed} {}", hashes.join(" "));
        }
        text
    }
}

/// Returns a text for each profile that has differences. A difference is a seed whose hashes differ, that is recorded
/// but was not run, or that was run but is not recorded.
fn differences(simulation: &str, before: &Hashes, now: &Hashes) -> Vec<String> {
    let mut differing: BTreeMap<&str, Vec<(u64, String)>> = BTreeMap::new();
    let only_before = before.seeds.keys().filter(|key| !now.seeds.contains_key(*key));
    for key in now.seeds.keys().chain(only_before) {
        let what = match (before.seeds.get(key), now.seeds.get(key)) {
            (Some(old), Some(new)) if old == new && before.transcripts == now.transcripts => continue,
            (Some(old), Some(new)) => {
                let names = now.transcripts.iter().enumerate();
                let other =
                    names.filter(|(at, name)| before.transcripts.get(*at) != Some(name) || old[*at] != new[*at]);
                other.map(|(_, name)| name.as_str()).collect::<Vec<_>>().join(" and ")
            }
            (None, _) => "not recorded".to_owned(),
            (_, None) => "recorded, but not run".to_owned(),
        };
        differing.entry(&key.0).or_default().push((key.1, what));
    }
    differing.into_iter().map(|(profile, seeds)| told(simulation, profile, &seeds)).collect()
}

/// Returns a text that lists the differing seeds of a profile, with a command that shows the first of them.
fn told(simulation: &str, profile: &str, seeds: &[(u64, String)]) -> String {
    let named: Vec<String> = seeds.iter().take(NAMED).map(|(seed, what)| format!("{seed} ({what})")).collect();
    let more = seeds.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let of = if profile == NO_PROFILE { String::new() } else { format!(", profile {profile}") };
    let option = if profile == NO_PROFILE { String::new() } else { format!(" --profile {profile}") };
    let first = seeds[0].0;
    format!(
        "{simulation}{of}: {} seeds: {}{more}\n  stentor sim {simulation}{option} --seed {first} --transcript \
         {simulation}-{first}.txt",
        seeds.len(),
        named.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORDED: &str = "\
# comment
profile seed trace history
all 0 00000000000000aa 00000000000000bb
all 1 00000000000000cc 00000000000000dd
calm 1 00000000000000ee 00000000000000ff
";

    fn hashes(text: &str) -> Hashes {
        Hashes::parse(text).unwrap()
    }

    #[test]
    fn equal_hashes_have_no_differences() {
        assert_eq!(differences("multicast", &hashes(RECORDED), &hashes(RECORDED)), [""; 0]);
    }

    #[test]
    fn difference_names_simulation_profile_seed_and_command() {
        let now = hashes(&RECORDED.replace("dd", "d0"));
        let [problem] = &differences("multicast", &hashes(RECORDED), &now)[..] else { panic!("one problem") };
        assert_eq!(
            problem,
            "multicast, profile all: 1 seeds: 1 (history)\n  stentor sim multicast --profile all --seed 1 --transcript \
             multicast-1.txt"
        );
        let both =
            differences("multicast", &hashes(RECORDED), &hashes(&RECORDED.replace("0ee", "0e0").replace("0ff", "0f0")));
        assert!(both[0].contains("profile calm: 1 seeds: 1 (trace and history)"), "{both:?}");
    }

    #[test]
    fn a_seed_on_one_side_only_is_a_difference() {
        let fewer: String =
            RECORDED.lines().filter(|line| !line.starts_with("calm")).map(|line| format!("{line}\n")).collect();
        let lost = differences("neb", &hashes(RECORDED), &hashes(&fewer));
        assert!(lost[0].starts_with("neb, profile calm: 1 seeds: 1 (recorded, but not run)"), "{lost:?}");
        let new = differences("neb", &hashes(&fewer), &hashes(RECORDED));
        assert!(new[0].starts_with("neb, profile calm: 1 seeds: 1 (not recorded)"), "{new:?}");
    }

    #[test]
    fn other_transcripts_are_a_difference_of_every_seed() {
        let renamed = differences("neb", &hashes(RECORDED), &hashes(&RECORDED.replace("trace", "posts")));
        assert!(renamed.len() == 2 && renamed[0].contains("2 seeds: 0 (posts), 1 (posts)"), "{renamed:?}");
    }

    #[test]
    fn many_seeds_are_counted_and_some_are_named() {
        let mut now = Hashes::default();
        let lines: String = (0..20).map(|seed| format!("{seed} 01 02\n")).collect();
        now.add(NO_PROFILE, &format!("seed packets registers\n{lines}")).unwrap();
        let all = differences("switch", &Hashes::default(), &now);
        assert!(all[0].starts_with("switch: 20 seeds: 0 (not recorded), "), "{all:?}");
        assert!(all[0].contains(" and 12 more\n  stentor sim switch --seed 0 --transcript switch-0.txt"), "{all:?}");
    }

    #[test]
    fn written_hashes_are_parsed() {
        assert_eq!(hashes(&hashes(RECORDED).text("multicast")), hashes(RECORDED));
        for broken in ["", "all 0 aa bb", "profile seed trace\nall 0 aa bb", "profile seed trace\nall x aa"] {
            assert!(Hashes::parse(broken).is_err(), "{broken}");
        }
        assert!(Hashes::parse("profile seed trace\nall 0 aa\nall 0 aa\n").is_err(), "twice");
    }

    /// The seeds that are run must be those that are recorded. A change of a number of seeds needs a new record.
    #[test]
    fn every_seed_that_is_run_is_recorded() {
        for (simulation, profiles) in SIMULATIONS {
            let recorded = hashes(&fs::read_to_string(path(&Context::new(), simulation)).unwrap());
            let run =
                profiles.iter().flat_map(|(profile, seeds)| (0..*seeds).map(|seed| ((*profile).to_owned(), seed)));
            let mut run: Vec<_> = run.collect();
            run.sort_unstable();
            assert_eq!(recorded.seeds.keys().cloned().collect::<Vec<_>>(), run, "{simulation}");
            assert!(run.len() >= 300, "{simulation}");
        }
    }

    #[test]
    fn the_docs_name_every_profile_and_the_number_of_seeds() {
        let root = Context::new().root;
        // A line may end at any word of a sentence, so all words are joined by single blanks.
        let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let read = |file: &str| words(fs::read_to_string(root.join(file)).unwrap());
        let table = read("docs/oracle.md");
        let profiles = SIMULATIONS.iter().flat_map(|(_, profiles)| profiles.iter());
        let all: u64 = profiles.clone().map(|(_, seeds)| seeds).sum();
        for (profile, _) in profiles.filter(|(profile, _)| *profile != NO_PROFILE) {
            assert!(table.contains(&format!("`{profile}`")), "{profile}");
        }
        assert!(table.contains(&format!("what {all} seeds do")), "{all}");
        assert!(read("ARCHITECTURE.md").contains(&format!("what {all} seeds do")), "{all}");
        assert!(read("CONTRIBUTING.md").contains(&format!("{all} simulated seeds")), "{all}");
    }
}
