use std::fs;

use rusqlite::Connection;
use tempfile::TempDir;

use super::*;

fn document(capacity: u32) -> Document {
    let text = format!(
        "resources: [{{identifier_glob: '*', capacity: {capacity}, algorithm: {{kind: FAIR_SHARE}}}}]"
    );
    Document::parse(&text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn capacity(document: &Document) -> f64 {
    document.templates()[0].capacity().get()
}

struct Home {
    folder: TempDir,
    path: PathBuf,
}

impl Home {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("doorman.db");
        Self { folder, path }
    }

    /// Opens the store; a fresh one has the capacity 1.
    fn open(&self) -> OpenedStore {
        Store::open(&self.path, &document(1), 1000).unwrap()
    }

    /// A store with the capacities 1, 2 and 3, closed.
    fn with_three_changes() -> Self {
        let home = Self::new();
        let mut store = home.open().store;
        for capacity in [2, 3] {
            write(&mut store, capacity).unwrap();
        }
        home
    }

    fn sql(&self, statement: &str) {
        let connection = Connection::open(&self.path).unwrap();
        connection.execute_batch(statement).unwrap();
    }

    fn files(&self) -> Vec<String> {
        let files = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<_> = files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn write(store: &mut Store, capacity: u32) -> Result<u64, StoreError> {
    let change = NewChange {
        changed_at: 2000,
        changed_by: "me",
        change: &format!("capacity {capacity}"),
    };
    let written = store.append(&document(capacity), &change)?;
    written.copy.unwrap();
    Ok(written.revision)
}

#[test]
fn reopened_store_has_the_newest_document() {
    let home = Home::new();
    let mut opened = home.open();
    assert_eq!(
        (capacity(&opened.document), opened.problems.len()),
        (1.0, 0)
    );
    assert_eq!(write(&mut opened.store, 2).unwrap(), 2);
    drop(opened);
    let opened = home.open();
    assert_eq!(
        (capacity(&opened.document), opened.problems.len()),
        (2.0, 0)
    );
    let history = opened.store.history(None, 10).unwrap();
    let told: Vec<_> = history
        .iter()
        .map(|it| {
            (
                it.revision,
                it.changed_at,
                it.changed_by.as_str(),
                it.change.as_str(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (2, 2000, "me", "capacity 2"),
            (1, 1000, "doorman", "the first document")
        ]
    );
    assert_eq!(history[0].version, document(2).version());
    assert_eq!(opened.store.history(Some(2), 10).unwrap(), history[1..]);
    assert_eq!(opened.store.history(None, 1).unwrap(), history[..1]);
}

#[test]
fn second_writer_is_rejected_and_readers_are_not() {
    let home = Home::new();
    let opened = home.open();
    let error = Store::open(&home.path, &document(1), 0).unwrap_err();
    assert!(matches!(error, OpenError::InUse(_)), "{error}");
    let reader = Store::open_to_read(&home.path).unwrap();
    let text = reader.newest_document().unwrap().unwrap();
    assert_eq!(Document::parse_json(&text).unwrap(), document(1));
    assert_eq!(reader.revision(1).unwrap().parse().unwrap(), document(1));
    assert_eq!(reader.history(None, 10).unwrap().len(), 1);
    drop(opened);
    let absent = Store::open_to_read(&home.path.with_extension("x")).unwrap_err();
    assert!(matches!(absent, OpenError::Absent(_)), "{absent}");
}

#[test]
fn store_that_cannot_be_created_is_an_error() {
    let nowhere = Path::new("/nonexistent/doorman.db");
    let error = Store::open(nowhere, &document(1), 0).unwrap_err();
    assert!(matches!(error, OpenError::Io(..)), "{error}");
}

#[test]
fn invalid_newest_document_is_skipped_and_reported() {
    let home = Home::with_three_changes();
    home.sql("UPDATE changes SET document = '{\"resources\": 7}' WHERE revision = 3");
    // The copy has the newest document.
    let opened = home.open();
    assert_eq!(capacity(&opened.document), 3.0);
    assert!(opened.problems[1].contains("copy"), "{:?}", opened.problems);
    drop(opened);
    fs::remove_file(home.path.with_extension("db.last-good.json")).unwrap();
    let mut opened = home.open();
    assert_eq!(capacity(&opened.document), 2.0);
    assert_eq!(opened.problems.len(), 1, "{:?}", opened.problems);
    assert!(
        opened.problems[0].contains("revision 3"),
        "{:?}",
        opened.problems
    );
    // The invalid row stays, and the next change follows it.
    assert_eq!(write(&mut opened.store, 4).unwrap(), 4);
    drop(opened);
    assert!(home.open().problems.is_empty());
}

#[test]
fn without_a_valid_document_the_copy_is_used() {
    let home = Home::with_three_changes();
    home.sql("UPDATE changes SET document = 'x'");
    let opened = home.open();
    assert_eq!(capacity(&opened.document), 3.0);
    drop(opened);
    fs::write(home.path.with_extension("db.last-good.json"), "x").unwrap();
    let opened = home.open();
    assert_eq!(capacity(&opened.document), 1.0);
    assert!(opened.problems.len() >= 5, "{:?}", opened.problems);
}

#[test]
fn corrupted_database_is_renamed_and_replaced() {
    let damages: [fn(&Path); 3] = [
        |path| {
            fs::write(
                path,
                "this is no database at all, but some text in its place",
            )
            .unwrap();
        },
        // A page in the middle.
        |path| {
            let mut bytes = fs::read(path).unwrap();
            bytes[4096..].fill(0xa5);
            fs::write(path, bytes).unwrap();
        },
        |path| {
            let bytes = fs::read(path).unwrap();
            fs::write(path, &bytes[..5000]).unwrap();
        },
    ];
    for damage in damages {
        let home = Home::with_three_changes();
        damage(&home.path);
        let mut opened = home.open();
        assert_eq!(capacity(&opened.document), 3.0, "{:?}", opened.problems);
        let problems = opened.problems.join("\n");
        assert!(problems.contains("corrupted-1000"), "{problems}");
        assert!(
            home.files()
                .iter()
                .any(|it| it == "doorman.db.corrupted-1000")
        );
        assert_eq!(write(&mut opened.store, 5).unwrap(), 5);
        drop(opened);
        let opened = home.open();
        assert_eq!(
            (capacity(&opened.document), opened.problems.len()),
            (5.0, 0)
        );
    }
}

#[test]
fn lost_database_is_restored_from_the_copy() {
    let home = Home::with_three_changes();
    fs::remove_file(&home.path).unwrap();
    let opened = home.open();
    assert_eq!(capacity(&opened.document), 3.0);
    assert!(
        opened.problems[0].contains("is gone"),
        "{:?}",
        opened.problems
    );
    drop(opened);
    assert!(home.open().problems.is_empty());
}

#[test]
fn empty_database_is_restored_from_the_copy() {
    let home = Home::with_three_changes();
    home.sql("DELETE FROM changes");
    let opened = home.open();
    assert_eq!(capacity(&opened.document), 3.0);
    assert!(opened.problems[0].contains("lost"), "{:?}", opened.problems);
}

#[test]
fn main_file_alone_has_every_change() {
    let home = Home::new();
    let mut opened = home.open();
    for number in [2, 3] {
        write(&mut opened.store, number).unwrap();
        let copied = home.folder.path().join("copied.db");
        fs::copy(&home.path, &copied).unwrap();
        let text = Store::open_to_read(&copied).unwrap().newest_document();
        let text = text.unwrap().unwrap();
        assert_eq!(
            capacity(&Document::parse_json(&text).unwrap()),
            f64::from(number)
        );
        fs::remove_file(copied).unwrap();
    }
}

#[test]
fn restored_backup_is_reported() {
    let home = Home::with_three_changes();
    home.sql("DELETE FROM changes WHERE revision = 3");
    let mut opened = home.open();
    assert_eq!(capacity(&opened.document), 2.0);
    assert!(
        opened.problems[0].contains("backup"),
        "{:?}",
        opened.problems
    );
    assert_eq!(write(&mut opened.store, 4).unwrap(), 3);
}

#[test]
fn failed_write_changes_nothing() {
    let home = Home::with_three_changes();
    let mut opened = home.open();
    let other = Connection::open(&home.path).unwrap();

    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = write(&mut opened.store, 4).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Locked, "{error}");
    other.execute_batch("ROLLBACK").unwrap();

    // A full disk.
    let pages: u32 = other
        .query_row("PRAGMA page_count", [], |row| row.get(0))
        .unwrap();
    opened.store.database.writer().unwrap().limit_pages(pages);
    let many: String = (0..2000)
        .map(|n| format!("- {{identifier_glob: r{n}, capacity: 1, algorithm: {{kind: STATIC}}}}\n"))
        .collect();
    let large = Document::parse(&format!("resources:\n{many}")).unwrap();
    let change = NewChange {
        changed_at: 0,
        changed_by: "me",
        change: "too much",
    };
    let error = opened.store.append(&large, &change).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Full, "{error}");
    assert_eq!(opened.store.history(None, 10).unwrap().len(), 3);
    assert_eq!(write(&mut opened.store, 4).unwrap(), 4);

    other
        .execute_batch("DELETE FROM changes WHERE revision = 4")
        .unwrap();
    let error = write(&mut opened.store, 5).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Foreign, "{error}");
    drop(opened);

    let mut opened = home.open();
    fs::rename(&home.path, home.path.with_extension("moved")).unwrap();
    let error = write(&mut opened.store, 5).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Foreign, "{error}");
}

#[test]
fn readable_store_without_a_valid_document_uses_the_built_in_one() {
    let home = Home::with_three_changes();
    home.sql("PRAGMA journal_mode = DELETE; UPDATE changes SET document = 'x'");
    let other = Connection::open(&home.path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    for (copy, used, problem) in [
        (true, 3.0, "has no valid document: using the copy beside it"),
        (false, 1.0, "has no valid document: using the built-in one"),
    ] {
        if !copy {
            fs::remove_file(home.path.with_extension("db.last-good.json")).unwrap();
        }
        let opened = home.open();
        assert_eq!(capacity(&opened.document), used);
        let problems = opened.problems.join("\n");
        assert!(problems.ends_with(problem), "{problems}");
        assert!(!problems.contains("cannot be read"), "{problems}");
        let read_only = opened.read_only.unwrap();
        assert!(read_only.contains("is readable, but cannot"), "{read_only}");
    }
}

#[test]
fn changes_after_a_remount_are_read() {
    let home = Home::with_three_changes();
    // The write-ahead log cannot be opened, as on a read-only file system.
    let log = home.path.with_extension("db-wal");
    fs::create_dir(&log).unwrap();
    let mut opened = home.open();
    assert_eq!(capacity(&opened.document), 3.0);
    assert!(opened.read_only.is_some());
    assert_eq!(opened.store.history(None, 10).unwrap().len(), 3);
    fs::remove_dir(&log).unwrap();
    home.sql("UPDATE changes SET change = 'later'");
    assert_eq!(opened.store.history(None, 1).unwrap()[0].change, "later");
    assert_eq!(opened.store.revision(2).unwrap().revision, 2);
    assert!(write(&mut opened.store, 4).is_err());
}

#[test]
fn first_document_that_cannot_be_stored_is_no_damage() {
    let home = Home::new();
    drop(home.open());
    fs::remove_file(home.path.with_extension("db.last-good.json")).unwrap();
    home.sql(
        "DELETE FROM changes; \
         CREATE TRIGGER full BEFORE INSERT ON changes BEGIN SELECT RAISE(ABORT, 'full'); END",
    );
    let mut opened = home.open();
    assert_eq!(capacity(&opened.document), 1.0);
    assert!(opened.problems.is_empty(), "{:?}", opened.problems);
    let read_only = opened.read_only.unwrap();
    assert!(
        read_only.contains("cannot be written (database error: full)"),
        "{read_only}"
    );
    home.sql("DROP TRIGGER full");
    assert_eq!(write(&mut opened.store, 2).unwrap(), 1);
}

#[test]
fn busy_author_evicts_only_own_changes() {
    let home = Home::new();
    let mut store = home.open().store;
    // Two other authors have made a few changes.
    home.sql(
        "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 10000) \
         INSERT INTO changes SELECT i, 0, iif(i % 100 = 0, iif(i % 200 = 0, 'b', 'c'), 'a'), '', '', 9, NULL FROM n",
    );
    store.newest = 10_000;
    for capacity in 2..12 {
        write(&mut store, capacity).unwrap();
    }
    let history = store.history(None, 20_000).unwrap();
    assert_eq!(history.len(), 10_000);
    let of = |by: &str| {
        history
            .iter()
            .filter(|change| change.changed_by == by)
            .count()
    };
    assert_eq!((of("b"), of("c"), of("a")), (50, 50, 9_889));
    // The oldest of `a` were evicted, but not the first document.
    assert_eq!(history.last().unwrap().revision, 1);
    assert_eq!(history.iter().rev().nth(1).unwrap().revision, 12);
}

#[test]
fn history_is_bounded() {
    let home = Home::new();
    let mut store = home.open().store;
    home.sql(
        "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 10005) \
         INSERT INTO changes SELECT i, 0, '', '', '', 20000, '{}' FROM n",
    );
    store.newest = 10_005;
    assert_eq!(write(&mut store, 2).unwrap(), 10_006);
    let history = store.history(None, 20_000).unwrap();
    assert_eq!(history.len(), 10_000);
    let reader = Store::open_to_read(&home.path).unwrap();
    // The documents of this test are invalid.
    let retained =
        |revision| !matches!(reader.revision(revision), Err(RevisionError::Absent { .. }));
    // 64 MiB of documents of 20,000 bytes.
    assert_eq!(
        (
            retained(10_006),
            retained(10_006 - 3355),
            retained(10_006 - 3356)
        ),
        (true, true, false)
    );
}

#[test]
fn foreign_file_is_rejected_and_left_untouched() {
    let home = Home::new();
    let rejected = |why: &str| {
        let before = home.files();
        let error = Store::open(&home.path, &document(1), 0).unwrap_err();
        assert!(matches!(error, OpenError::Foreign(..)), "{error}");
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(home.files(), before);
    };
    for text in ["resources: []\n", "{}"] {
        fs::write(&home.path, text).unwrap();
        rejected("file:PATH");
        assert_eq!(fs::read_to_string(&home.path).unwrap(), text);
        fs::remove_file(&home.path).unwrap();
    }
    fs::create_dir(&home.path).unwrap();
    rejected("folder");
    fs::remove_dir(&home.path).unwrap();
    for marked in [0, 7] {
        home.sql("CREATE TABLE users (name TEXT)");
        home.sql(&format!("PRAGMA application_id = {marked}"));
        let bytes = fs::read(&home.path).unwrap();
        rejected("another program");
        assert_eq!(fs::read(&home.path).unwrap(), bytes);
        fs::remove_file(&home.path).unwrap();
    }
}

#[test]
fn copied_store_without_marks_is_accepted() {
    let home = Home::with_three_changes();
    for marks in ["", "PRAGMA application_id = 0; PRAGMA user_version = 0"] {
        home.sql(marks);
        let alone = TempDir::new().unwrap();
        let path = alone.path().join("restored.db");
        fs::copy(&home.path, &path).unwrap();
        let opened = Store::open(&path, &document(1), 0).unwrap();
        assert_eq!(
            (capacity(&opened.document), opened.problems.len()),
            (3.0, 0)
        );
    }
}

#[test]
fn every_changed_bit_is_detected() {
    let home = Home::with_three_changes();
    // The database falls back to an older revision. The copy has no other, and is used if it can be
    // parsed.
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
fn altered_document_is_the_last_resort() {
    let home = Home::with_three_changes();
    let copy = home.path.with_extension("db.last-good.json");
    let kept = fs::read_to_string(&copy).unwrap();
    let other = kept.replace(document(3).version(), document(4).version());

    // Only the copy.
    fs::remove_file(&home.path).unwrap();
    fs::write(&copy, &other).unwrap();
    let opened = home.open();
    assert_eq!(capacity(&opened.document), 3.0, "{:?}", opened.problems);
    assert!(
        opened.problems.iter().any(|it| it.contains("altered one")),
        "{:?}",
        opened.problems
    );
    drop(opened);
    assert!(home.open().problems.is_empty());

    // Only the database.
    let home = Home::with_three_changes();
    fs::remove_file(home.path.with_extension("db.last-good.json")).unwrap();
    home.sql("UPDATE changes SET version = 'of another release'");
    for _ in 0..2 {
        let opened = home.open();
        assert_eq!(capacity(&opened.document), 3.0, "{:?}", opened.problems);
        let last = opened.problems.last().unwrap();
        assert!(last.contains("altered one"), "{:?}", opened.problems);
    }
}

#[test]
fn past_documents_are_read_by_revision() {
    let home = Home::with_three_changes();
    home.sql("UPDATE changes SET document = NULL WHERE revision = 1");
    let mut store = home.open().store;
    assert_eq!(store.revision(2).unwrap().parse().unwrap(), document(2));
    for absent in [0, 1, 4, u64::MAX] {
        let error = store.revision(absent).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "no document of revision {absent} is stored; the oldest is of revision 2, the \
                 newest of revision 3"
            )
        );
    }
    write(&mut store, 4).unwrap();
    assert_eq!(store.revision(4).unwrap().parse().unwrap(), document(4));
    home.sql("UPDATE changes SET document = replace(document, '2.0', '9.0') WHERE revision = 2");
    home.sql("UPDATE changes SET document = '{}' WHERE revision = 3");
    for (revision, reason) in [(2, "it was altered"), (3, "it is invalid")] {
        let error = store.revision(revision).unwrap().parse().unwrap_err();
        assert!(matches!(error, RevisionError::Unusable { .. }), "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn store_of_a_later_release_is_rejected_and_left_untouched() {
    let home = Home::with_three_changes();
    home.sql("PRAGMA user_version = 2");
    fs::remove_file(home.path.with_extension("db.lock")).unwrap();
    let contents = || {
        let files = home.files().into_iter();
        let read = |name| fs::read(home.folder.path().join(name)).unwrap();
        files
            .map(|name| (name.clone(), read(name)))
            .collect::<Vec<_>>()
    };
    let before = contents();
    for error in [
        Store::open(&home.path, &document(1), 0).unwrap_err(),
        Store::open_to_read(&home.path).unwrap_err(),
    ] {
        assert!(matches!(error, OpenError::Newer(_, 2)), "{error}");
        let text = error.to_string();
        let expected = format!(
            "the store {} has format 2, and this version of doorman knows formats up to 1: ",
            home.path.display()
        );
        assert!(text.starts_with(&expected), "{text}");
    }
    assert!(contents() == before, "{:?}", home.files());
}

#[test]
fn format_is_found_in_the_write_ahead_log() {
    let home = Home::with_three_changes();
    let other = Connection::open(&home.path).unwrap();
    other
        .execute_batch("PRAGMA wal_autocheckpoint = 0; PRAGMA user_version = 2")
        .unwrap();
    for error in [
        Store::open(&home.path, &document(1), 0).unwrap_err(),
        Store::open_to_read(&home.path).unwrap_err(),
    ] {
        assert!(matches!(error, OpenError::Newer(_, 2)), "{error}");
    }
}

/// Another release may write other fields, and so have another version of the same document.
#[test]
fn document_with_other_fields_may_have_another_version() {
    let home = Home::with_three_changes();
    fs::remove_file(home.path.with_extension("db.last-good.json")).unwrap();
    home.sql(
        "UPDATE changes SET version = 'of another release', \
         document = replace(document, '\"unit\":\"rate\",', '') WHERE revision = 3",
    );
    let opened = home.open();
    assert_eq!(opened.problems, [""; 0]);
    assert_eq!(capacity(&opened.document), 3.0);
}

#[test]
fn version_that_is_not_utf8_is_skipped() {
    let home = Home::with_three_changes();
    fs::remove_file(home.path.with_extension("db.last-good.json")).unwrap();
    home.sql("UPDATE changes SET version = CAST(x'e1' AS TEXT) WHERE revision = 3");
    let opened = home.open();
    assert_eq!(capacity(&opened.document), 2.0, "{:?}", opened.problems);
    assert_eq!(opened.problems.len(), 1, "{:?}", opened.problems);
}
