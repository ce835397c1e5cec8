//! The preprocessor that mdBook runs: in the HTML, links to files outside `docs` lead to the repository.
//!
//! mdBook writes the book as JSON to the preprocessor's standard input, and reads the changed book from its standard
//! output.

use std::io;

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Reads a book from the standard input and writes it to the standard output with changed links.
pub(crate) fn run() -> Result<()> {
    let input: Value = serde_json::from_reader(io::stdin().lock()).context("mdBook sends no JSON")?;
    let Value::Array(mut parts) = input else { anyhow::bail!("mdBook sends no pair of a context and a book") };
    let mut book = parts.pop().context("mdBook sends no book")?;
    lead_to_repository(&mut book);
    serde_json::to_writer(io::stdout().lock(), &book)?;
    Ok(())
}

/// Changes the links in the contents of all chapters.
fn lead_to_repository(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::String(text) if name == "content" => *text = changed(text),
                    field => lead_to_repository(field),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(lead_to_repository),
        _ => {}
    }
}

/// Returns a page whose links to `../FILE` lead to the file in the repository. All pages are in `docs` itself.
fn changed(page: &str) -> String {
    page.replace("](../", concat!("](", env!("CARGO_PKG_REPOSITORY"), "/blob/main/"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn links_out_of_the_book_lead_to_the_repository() {
        let mut book = json!({ "items": [
            { "Chapter": { "name": "a", "content": "[the code](../crates/a.rs), [a page](b.md)", "sub_items": [
                { "Chapter": { "name": "../c", "content": "[security](../SECURITY.md#reports)", "sub_items": [] } },
            ] } },
            "Separator",
        ] });
        super::lead_to_repository(&mut book);
        let chapter = &book["items"][0]["Chapter"];
        let root = format!("{}/blob/main", env!("CARGO_PKG_REPOSITORY"));
        assert_eq!(chapter["content"], format!("[the code]({root}/crates/a.rs), [a page](b.md)"));
        let inner = &chapter["sub_items"][0]["Chapter"];
        assert_eq!(inner["content"], format!("[security]({root}/SECURITY.md#reports)"));
        assert_eq!(inner["name"], "../c");
    }
}
