//! What was written as a version counts as long as it is that.

use super::*;

#[test]
fn no_bit_of_a_document_changes_unseen() {
    let home = Home::with_three_changes();
    // Alone, the database falls back on an older one; the copy has no other, and counts where it can be read.
    for (path, older) in [
        (home.path.clone(), Some(2.0)),
        (home.path.with_extension("db.last-good.json"), None),
    ] {
        let whole = fs::read(&path).unwrap();
        let text = document(3).to_json();
        let mut places = whole.windows(text.len());
        let at = places.position(|it| it == text.as_bytes()).unwrap();
        for (offset, bit) in (at..at + text.len()).zip((0..8).cycle()) {
            let other = TempDir::new().unwrap();
            let mut bytes = whole.clone();
            bytes[offset] ^= 1 << bit;
            fs::write(other.path().join(path.file_name().unwrap()), bytes).unwrap();
            let opened = Store::open(&other.path().join("doorman.db"), &document(1), 0).unwrap();
            let found = capacity(&opened.document);
            assert!(
                found == 3.0
                    || (older.is_none_or(|older| found == older) && !opened.problems.is_empty()),
                "{offset}: {found}, {:?}",
                opened.problems
            );
        }
    }
}

#[test]
fn a_document_that_is_not_as_it_was_written_is_better_than_none() {
    let home = Home::with_three_changes();
    let copy = home.path.with_extension("db.last-good.json");
    let kept = fs::read_to_string(&copy).unwrap();
    let other = kept.replace(document(3).version(), document(4).version());

    // The copy alone; what it says is written anew.
    fs::remove_file(&home.path).unwrap();
    fs::write(&copy, &other).unwrap();
    let opened = home.open();
    assert_eq!(capacity(&opened.document), 3.0, "{:?}", opened.problems);
    assert!(
        opened.problems.iter().any(|it| it.contains("as it is")),
        "{:?}",
        opened.problems
    );
    drop(opened);
    assert!(home.open().problems.is_empty());

    // The database alone: the newest of it.
    let home = Home::with_three_changes();
    fs::remove_file(home.path.with_extension("db.last-good.json")).unwrap();
    home.sql("UPDATE changes SET version = 'of another release'");
    for _ in 0..2 {
        let opened = home.open();
        assert_eq!(capacity(&opened.document), 3.0, "{:?}", opened.problems);
        let last = opened.problems.last().unwrap();
        assert!(last.contains("as it is"), "{:?}", opened.problems);
    }
    // Of a later form it is only read.
    home.sql("PRAGMA user_version = 77");
    let opened = home.open();
    assert_eq!(capacity(&opened.document), 3.0, "{:?}", opened.problems);
}

#[test]
fn a_copy_that_was_written_without_a_version_is_good() {
    let home = Home::with_three_changes();
    let copy = home.path.with_extension("db.last-good.json");
    let kept = fs::read_to_string(&copy).unwrap();
    let version = format!("\"version\":\"{}\",", document(3).version());
    assert!(kept.contains(&version), "{kept}");
    fs::write(&copy, kept.replace(&version, "")).unwrap();
    assert!(home.open().problems.is_empty());
    fs::remove_file(&home.path).unwrap();
    assert_eq!(capacity(&home.open().document), 3.0);
}

#[test]
fn a_version_that_is_no_text_any_more_ends_no_search() {
    let home = Home::with_three_changes();
    fs::remove_file(home.path.with_extension("db.last-good.json")).unwrap();
    home.sql("UPDATE changes SET version = CAST(x'e1' AS TEXT) WHERE revision = 3");
    let opened = home.open();
    assert_eq!(capacity(&opened.document), 2.0, "{:?}", opened.problems);
    assert_eq!(opened.problems.len(), 1, "{:?}", opened.problems);
}
