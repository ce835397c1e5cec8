//! Copies the Rust blocks of the book into functions and `impl`s.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Folders with pages, relative to the root of the repository. Folders inside them are listed separately.
const FOLDERS: [&str; 5] = ["", "docs", "examples/bank", "examples/kv", "examples/lock"];

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../..");
    let mut code = String::new();
    for folder in FOLDERS {
        let folder = root.join(folder);
        if folder.ends_with("docs") {
            // Run the script again when a page is added.
            println!("cargo:rerun-if-changed={}", folder.display());
        }
        let mut pages: Vec<PathBuf> =
            fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_, std::io::Error>>()?;
        pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
        pages.sort();
        for page in pages {
            println!("cargo:rerun-if-changed={}", page.display());
            let name = page.strip_prefix(&root)?;
            add_page(&mut code, name, &fs::read_to_string(&page)?)
                .map_err(|error| format!("{}: {error}", name.display()))?;
        }
    }
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("blocks.rs"), code)?;
    Ok(())
}

/// Adds one item to `code` for each Rust block of a page. A comment above the block can contain Rust code that the page
/// does not show.
///
/// With the comment `<!-- methods of TYPE: RUST -->` the item is an `impl TYPE` that contains the block. The
/// declarations `RUST` precede the `impl`. Otherwise the item is a function that contains the block. With the comment
/// `<!-- code: RUST -->`, the statements `RUST` precede the block in the function.
fn add_page(code: &mut String, page: &Path, text: &str) -> Result<(), Box<dyn Error>> {
    let (mut above, mut lines) = (String::new(), text.lines().enumerate());
    while let Some((at, line)) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        if line.trim() == "```rust" {
            let mut block = String::new();
            loop {
                let (_, line) = lines.next().ok_or_else(|| format!("the block in line {} does not end", at + 1))?;
                if line.trim() == "```" {
                    break;
                }
                writeln!(block, "{}", completed(line.get(indent..).unwrap_or_default()))?;
            }
            add_block(code, page, at + 1, &above, &block)?;
        } else if line.trim().starts_with("```rust") && !above.starts_with("<!-- not compiled: ") {
            return Err(format!("line {}: a reason is missing above: `<!-- not compiled: REASON -->`", at + 1).into());
        }
        if !line.trim().is_empty() {
            above = line.trim().to_owned();
        }
    }
    Ok(())
}

/// Replaces `…` by an expression that compiles.
fn completed(line: &str) -> String {
    let (code, comment) = line.find("//").map_or((line, ""), |at| line.split_at(at));
    if code.trim() == "…" { "return anything();".to_owned() } else { code.replace('…', "anything()") + comment }
}

fn add_block(code: &mut String, page: &Path, line: usize, above: &str, block: &str) -> Result<(), Box<dyn Error>> {
    let mark = |begin: &str| above.strip_prefix(begin).and_then(|rest| rest.strip_suffix("-->")).map(str::trim);
    writeln!(code, "\n// {}, line {line}", page.display())?;
    if let Some(rest) = mark("<!-- methods of ") {
        let (name, before) = rest.split_once(':').ok_or("`<!-- methods of TYPE: RUST -->` lacks its colon")?;
        writeln!(code, "const _: () = {{\nuse crate::given::*;\n{before}\nimpl {name} {{\n{block}}}\n}};")?;
        return Ok(());
    }
    let before = mark("<!-- code:").unwrap_or_default();
    writeln!(
        code,
        "const _: () = {{\nuse crate::given::*;\nfn block(cluster: Cluster, group: Group, client: Client) -> Result<(), Box<dyn Error>> {{\n{before}\nlet _ = {{\n{block}\n}};\n\
         #[allow(unreachable_code)]\nOk(())\n}}\n}};"
    )?;
    Ok(())
}
