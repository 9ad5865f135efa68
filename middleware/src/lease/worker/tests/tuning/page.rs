//! `docs/TUNING.md`: each table follows a comment with its name.

use std::{env, fs, path::PathBuf};

use super::tables::{self, Results};

fn path() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/TUNING.md"))
}

/// The page with another text of the table of this name.
pub(super) fn splice(page: &str, table: &str, text: &str) -> String {
    let (before, _, after) = split(page, table);
    format!("{before}{text}{after}")
}

/// The table of this name in the page, as the text before, of and after it.
fn split<'p>(page: &'p str, table: &str) -> (&'p str, &'p str, &'p str) {
    let mark = format!("<!-- table: {table} -->\n\n");
    let Some((before, rest)) = page.split_once(&mark) else {
        panic!("the page has no table {table}");
    };
    let before = &page[..before.len() + mark.len()];
    let end = rest.find("\n\n").map_or(rest.len(), |end| end + 1);
    (before, &rest[..end], &rest[end..])
}

/// Whether the page has the constants of the program, and figures of runs with them.
pub(super) fn check_defaults() {
    let page = fs::read_to_string(path()).unwrap();
    let [refused, served_after] = tables::shift_cells();
    for table in tables::all() {
        let (_, text, _) = split(&page, table.name);
        let label = format!("| {} | ", table.default_label());
        let row = text.lines().find_map(|line| line.strip_prefix(&label));
        let row = row.unwrap_or_else(|| {
            panic!(
                "docs/TUNING.md: no row of {} begins with {label}: run tests/tuning",
                table.name
            )
        });
        if text.starts_with("| | steady") {
            let cells: Vec<&str> = row.split(" | ").collect();
            assert_eq!(
                (cells[1], cells[2]),
                (refused.as_str(), served_after.as_str()),
                "docs/TUNING.md: the figures of {} are outdated: run tests/tuning",
                table.name
            );
        }
    }
}

/// Compares all tables with the page, or writes them to it if `DOORMAN_UPDATE` is set.
pub(super) fn check_or_update() {
    let page = fs::read_to_string(path()).unwrap();
    // `DOORMAN_TABLES` names the tables to make, by default all.
    let chosen = env::var("DOORMAN_TABLES").unwrap_or_default();
    let mut tables = tables::all();
    if !chosen.is_empty() {
        tables.retain(|table| chosen.split(',').any(|name| name == table.name));
    }
    let results = Results::of(&tables);
    let mut updated = page.clone();
    for table in &tables {
        let text = results.table(table);
        println!("{}\n\n{text}", table.name);
        updated = splice(&updated, table.name, &text);
    }
    if env::var_os("DOORMAN_UPDATE").is_some() {
        fs::write(path(), updated).unwrap();
    } else {
        assert!(
            updated == page,
            "docs/TUNING.md is outdated: run tests/tuning"
        );
    }
}
