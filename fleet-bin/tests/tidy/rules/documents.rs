//! Links, paths and types that the documents name exist.

use crate::report::{Finding, fail_on};
use crate::rust::mentions;
use crate::tree::{File, file, files, has_extension, rust_files, top};

const GLOSSARY: &str = "docs/reference/glossary.md";

/// The glossary holds only what fleet itself adds to the field's vocabulary.
const MAX_TERMS: usize = 60;

/// The page with the table of deciding files, and the heading above that table.
const ARCHITECTURE: &str = "docs/explain/architecture.md";
const DECISIONS: &str = "## Where is X decided?";
const MIN_DECISIONS: usize = 20;

#[test]
fn relative_links_resolve() {
    let documents = files().iter().filter(|file| has_extension(&file.path, "md"));
    let findings = documents.flat_map(|document| {
        let links = links(&document.text).into_iter();
        let broken = links.filter(|(_, target)| !resolves(document, target));
        broken.map(|(line, target)| Finding::at(&document.path, line, format!("`{target}`")))
    });
    fail_on(findings.collect(), "point the link at what exists");
}

#[test]
fn every_crate_has_a_readme() {
    let manifests = files().iter().filter(|file| file.path.ends_with("Cargo.toml"));
    let readmes = manifests.map(|file| file.path.replace("Cargo.toml", "README.md"));
    let missing = readmes.filter(|path| file(path).is_none());
    fail_on(
        missing.map(|path| Finding::whole(&path, "is missing")).collect(),
        "say what the crate is for, with an example that compiles",
    );
}

#[test]
fn the_glossary_is_in_order() {
    let terms = terms();
    assert!(!terms.is_empty(), "{GLOSSARY} has no terms");
    assert!(terms.len() <= MAX_TERMS, "{GLOSSARY} has {} of at most {MAX_TERMS}", terms.len());
    let pairs = terms.iter().zip(terms.iter().skip(1));
    let wrong = pairs.filter(|(a, b)| a.name.to_lowercase() >= b.name.to_lowercase());
    let findings = wrong.map(|(_, later)| Finding::at(GLOSSARY, later.line, later.name));
    fail_on(findings.collect(), "sort the terms, and keep one of two that are the same");
}

#[test]
fn the_glossary_names_types_that_exist() {
    let unknown = terms().into_iter().flat_map(|term| {
        let types = term.types.split('`').skip(1).step_by(2);
        let unknown = types.filter(|name| !is_public(name));
        unknown.map(move |name| Finding::at(GLOSSARY, term.line, name)).collect::<Vec<_>>()
    });
    fail_on(unknown.collect(), "use the name of a public type, or write a dash");
}

#[test]
fn every_decision_names_existing_files() {
    let text = file(ARCHITECTURE).map_or("", |file| file.text.as_str());
    let rows = decisions(text);
    assert!(rows.len() >= MIN_DECISIONS, "{ARCHITECTURE}: {} rows", rows.len());
    let findings = rows.into_iter().flat_map(|(line, paths)| {
        let wrong: Vec<String> = match paths.as_slice() {
            [] => vec!["names no file".to_owned()],
            paths => paths.iter().filter(|path| file(path).is_none()).cloned().collect(),
        };
        wrong.into_iter().map(move |what| Finding::at(ARCHITECTURE, line, what))
    });
    fail_on(findings.collect(), "name the files that decide it, as they are called now");
}

/// The rows of the table of deciding files: the line, and the paths in its backticks.
fn decisions(text: &str) -> Vec<(usize, Vec<String>)> {
    let lines = (1..).zip(text.lines()).skip_while(|(_, line)| *line != DECISIONS).skip(1);
    let section = lines.take_while(|(_, line)| !line.starts_with("## "));
    let rows = section.filter(|(_, line)| line.starts_with("| ")).skip(1);
    rows.map(|(line, row)| {
        let quoted = row.split('`').skip(1).step_by(2);
        (line, quoted.filter(|path| has_extension(path, "rs")).map(str::to_owned).collect())
    })
    .collect()
}

/// A row of the glossary's table.
struct Term {
    line: usize,
    name: &'static str,
    types: &'static str,
}

fn terms() -> Vec<Term> {
    let text = file(GLOSSARY).map_or("", |file| file.text.as_str());
    let rows = (1..).zip(text.lines()).filter_map(|(line, row)| {
        let mut cells = row.strip_prefix("| ")?.split(" | ");
        let (name, types) = (cells.next()?.trim(), cells.next()?.trim());
        (name != "term" && !name.starts_with('-')).then_some(Term { line, name, types })
    });
    rows.collect()
}

/// Whether a library lists this name at its root, in a public module or in a list below one.
fn is_public(name: &str) -> bool {
    let is_list = |path: &str| {
        let public = ["/src/graph/", "/src/registry/", "/src/mirror/", "/src/transfer/"];
        let in_public = public.iter().any(|folder| path.contains(folder));
        let is_root = path.ends_with("/src/lib.rs");
        (in_public && path.ends_with("/mod.rs")) || is_root || is_public_module(path)
    };
    let mut lists = rust_files().iter().filter(|file| is_list(&file.path));
    lists.any(|file| mentions(file.source.code(), name))
}

/// Whether the root of the file's library declares the file as a public module.
fn is_public_module(path: &str) -> bool {
    let Some((library, module)) = path.split_once("/src/") else { return false };
    let name = module.trim_end_matches("/mod.rs").trim_end_matches(".rs");
    let root = format!("{library}/src/lib.rs");
    let mut roots = rust_files().iter().filter(|file| file.path == root);
    roots.any(|root| mentions(root.source.code(), &format!("pub mod {name};")))
}

fn resolves(document: &File, target: &str) -> bool {
    let outside = target.contains("://") || target.starts_with("mailto:");
    // Links to items occur in a README that is a crate doc; rustdoc checks those.
    if outside || target.starts_with('#') || target.contains("::") {
        return true;
    }
    let target = target.split_once('#').map_or(target, |(path, _)| path);
    let folder = document.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    top().join(folder).join(target).exists()
}

/// The target of each `[text](target)` and `[text]: target`, outside code blocks.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut in_code = false;
    let mut found = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.trim_start();
        if text.starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            found.extend(line_links(text).map(|target| (line, target)));
        }
    }
    found
}

fn line_links(text: &str) -> impl Iterator<Item = String> {
    let prose: String = text.split('`').step_by(2).collect::<Vec<_>>().join("`");
    let inline = prose.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let mut targets: Vec<String> = inline.map(|(target, _)| target.to_owned()).collect();
    if let Some((_, target)) = prose.split_once("]: ").filter(|_| prose.starts_with('[')) {
        targets.push(target.trim().to_owned());
    }
    targets.into_iter()
}

#[test]
fn decision_rows_are_read() {
    let table = "| what | where |\n|---|---|\n| `C=` | `a/b.rs` |\n";
    let text = format!("| `x.rs` |\n{DECISIONS}\n\n{table}## End\n| `e.rs` |\n");
    assert_eq!(decisions(&text), [(6, vec!["a/b.rs".to_owned()])]);
}

#[test]
fn links_are_found_outside_code() {
    let text = "[a](b.md) and [`c`](d.md#e)\n```\n[x](y)\n```\n`[x](y)`\n[f]: g.md\n";
    let found = links(text);
    let expected = [(1, "b.md"), (1, "d.md#e"), (6, "g.md")];
    assert_eq!(found, expected.map(|(line, target)| (line, target.to_owned())));
    let document = File { path: "docs/a.md".to_owned(), text: String::new() };
    assert!(resolves(&document, "../Cargo.toml#x") && !resolves(&document, "nowhere.md"));
}
