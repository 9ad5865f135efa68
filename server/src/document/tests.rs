use std::{
    convert::Infallible,
    fs,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use doorman_config::{Document, EditNotes, FileSource, LastGoodFile, Restrictions, Store};
use doorman_openapi::{Epoch, Moment};
use tempfile::TempDir;
use tokio::time::{advance, sleep};

use super::{editor::MAX_RUNNING, file::LastValidWriter, *};
use crate::{leasing::SharedLedger, util::clock, util::follow::POLL_INTERVAL};
use doorman_core::{
    ledger::Ledger, ledger::Predecessor, ledger::Settings, ledger::UnmatchedPolicy,
    reign::DurableBound, reign::Reign,
};

fn text(capacity: u32) -> String {
    format!(
        "resources: [{{identifier_glob: '*', capacity: {capacity}, algorithm: {{kind: FAIR_SHARE}}}}]"
    )
}

fn active(document: Document) -> ActiveDocument {
    let document = Arc::new(document);
    let settings = Settings {
        max_leases: 10,
        unmatched: UnmatchedPolicy::Grant,
        predecessor: Predecessor::None,
        epoch: Epoch::ZERO,
    };
    let ledger = Ledger::new(Arc::clone(&document), settings, clock::now());
    let bound = DurableBound::new(Moment::NEVER, u64::MAX);
    let reign = Reign::new(Epoch::ZERO, Moment::NEVER, ledger, bound);
    let ledger = Arc::new(SharedLedger::with_document(Arc::clone(&document)));
    ledger.begin(reign);
    ActiveDocument::new(ledger, document)
}

/// Runs `test` while the document follows a file.
async fn following(test: impl AsyncFnOnce(&Path, &ActiveDocument)) {
    let home = TempDir::new().unwrap();
    let file = home.path().join("limits.yaml");
    fs::write(&file, text(1)).unwrap();
    let source = FileSource::new(&file);
    let active = Arc::new(active(source.load().unwrap()));
    tokio::select! {
        () = file::follow(source, home.path().to_owned(), Arc::clone(&active)) => panic!("it stopped following"),
        () = test(&file, &active) => {}
    }
}

fn capacity(active: &ActiveDocument) -> f64 {
    active.get().templates()[0].capacity().get()
}

async fn until(active: &ActiveDocument, is: impl Fn(&ActiveDocument) -> bool) {
    for _ in 0..6_000 {
        if is(active) {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("not within a minute");
}

#[tokio::test(start_paused = true)]
async fn changed_file_is_applied() {
    following(async |file, active| {
        fs::write(file, text(2)).unwrap();
        until(active, |it| capacity(it) == 2.0).await;
        let replacement = file.with_extension("new");
        fs::write(&replacement, text(3)).unwrap();
        fs::rename(&replacement, file).unwrap();
        until(active, |it| capacity(it) == 3.0).await;
        assert_eq!(active.reloads.get("refused"), 0);
        assert_eq!(active.reloads.get("applied"), 2);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn invalid_file_leaves_the_active_document() {
    following(async |file, active| {
        fs::write(file, "resources: [{identifier_glob: '*', capacity: -1}]").unwrap();
        until(active, |it| it.error().is_some()).await;
        let error = active.error().unwrap_or_default();
        assert!(
            error.contains("limits.yaml:1") && error.contains("capacity"),
            "{error}"
        );
        assert_eq!(capacity(active), 1.0);

        fs::remove_file(file).unwrap();
        until(active, |it| it.reloads.get("refused") == 2).await;
        assert!(
            active
                .error()
                .is_some_and(|error| error.contains("cannot be read"))
        );

        // The active document comes back: the error is cleared, nothing is applied.
        fs::write(file, text(1) + "\n").unwrap();
        until(active, |it| it.error().is_none()).await;
        assert_eq!(active.reloads.get("applied"), 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn valid_file_is_stored_for_the_next_start() {
    following(async |file, active| {
        let source = FileSource::new(file);
        let last_good = LastGoodFile::in_dir(file.parent().unwrap());
        let kept = |is: f64| {
            let kept = last_good.load(&source);
            kept.is_some_and(|it| it.templates()[0].capacity().get() == is)
        };
        until(active, |_| kept(1.0)).await;
        fs::write(file, text(2)).unwrap();
        until(active, |_| kept(2.0)).await;
        fs::write(file, "resources: 5").unwrap();
        until(active, |it| it.error().is_some()).await;
        assert!(kept(2.0));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn failed_write_succeeds_later() {
    following(async |file, active| {
        let source = FileSource::new(file);
        let home = file.parent().unwrap();
        let last_good = LastGoodFile::in_dir(home);
        let kept = |is: f64| {
            let kept = last_good.load(&source);
            kept.is_some_and(|it| it.templates()[0].capacity().get() == is)
        };
        until(active, |_| kept(1.0)).await;
        // Blocks the temporary file.
        let obstacle = home.join("file.last-good.json.new");
        fs::create_dir(&obstacle).unwrap();
        fs::write(file, text(2)).unwrap();
        until(active, |it| capacity(it) == 2.0).await;
        sleep(3 * POLL_INTERVAL).await;
        assert!(kept(1.0));
        fs::remove_dir(&obstacle).unwrap();
        until(active, |_| kept(2.0)).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn error_of_the_start_is_counted_once() {
    let names: String = (0..200).map(|n| format!("- {{wrong{n}: 1}}\n")).collect();
    let wrong = format!("resources:\n{names}");
    following(async |file, active| {
        fs::write(file, &wrong).unwrap();
        let reason = FileSource::new(file).load().unwrap_err().full_message();
        assert!(reason.len() > 5_000, "{}", reason.len());
        active.reject(&reason);
        sleep(3 * POLL_INTERVAL).await;
        assert_eq!(active.reloads.get("refused"), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn half_written_file_is_not_applied() {
    following(async |file, active| {
        // Every prefix is a valid document.
        let whole = "resources:\n".to_owned()
            + &(0..8)
                .map(|n| {
                    format!(
                        "- {{identifier_glob: r{n}, capacity: 9, algorithm: {{kind: STATIC}}}}\n"
                    )
                })
                .collect::<String>();
        let mut written = String::new();
        for line in whole.split_inclusive('\n') {
            written += line;
            fs::write(file, &written).unwrap();
            sleep(Duration::from_millis(100)).await;
        }
        until(active, |it| capacity(it) == 9.0).await;
        assert_eq!(active.get().templates().len(), 8);
        let reloads = ["applied", "refused"].map(|outcome| active.reloads.get(outcome));
        assert_eq!(reloads, [1, 0]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn file_that_never_settles_is_applied() {
    following(async |file, active| {
        let write = async {
            for n in 2.. {
                fs::write(file, text(n)).unwrap();
                sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::select! {
            () = until(active, |it| capacity(it) > 1.0) => {}
            () = write => {}
        }
    })
    .await;
}

#[tokio::test]
async fn long_error_is_truncated() {
    let active = active(Document::built_in());
    active.reject(&"ü".repeat(5000));
    assert!(active.error().is_some_and(|error| error.len() < 4100));
}

#[tokio::test(start_paused = true)]
async fn failed_write_is_retried_after_the_poll_interval() {
    let home = TempDir::new().unwrap();
    let file = home.path().join("limits.yaml");
    fs::write(&file, "resources: []").unwrap();
    let document = Arc::new(Document::built_in());
    // A file cannot replace a directory.
    let place = home.path().join("file.last-good.json");
    fs::create_dir(&place).unwrap();
    let mut writer = LastValidWriter::new(file.display().to_string(), home.path());
    writer.write(Arc::clone(&document)).await;

    fs::remove_dir(&place).unwrap();
    writer.write(Arc::clone(&document)).await;
    assert!(!place.exists());
    // Another document is written immediately.
    let other = Arc::new(Document::built_in());
    writer.write(other).await;
    assert!(place.is_file());

    fs::remove_file(&place).unwrap();
    fs::create_dir(&place).unwrap();
    writer.write(Arc::clone(&document)).await;
    fs::remove_dir(&place).unwrap();
    advance(POLL_INTERVAL).await;
    writer.write(document).await;
    assert!(place.is_file());
}

/// An editor with a store in which the document was changed so many times.
async fn editor_after(home: &TempDir, changes: u32) -> Arc<DocumentEditor> {
    let path = home.path().join("doorman.db");
    let first = Document::parse(&text(1)).unwrap();
    let opened = Store::open(&path, &first, 1000).unwrap();
    let store = DocumentStore::Sqlite(Mutex::new(opened.store));
    let active = Arc::new(active(opened.document));
    let editor = Arc::new(DocumentEditor::new(active, store, "store"));
    for change in 0..changes {
        set_capacity(&editor, 2 + change).await;
    }
    editor
}

async fn set_capacity(editor: &Arc<DocumentEditor>, capacity: u32) {
    let edit = move |_: &Document| Ok::<_, Infallible>(Document::parse(&text(capacity)).unwrap());
    editor.edit("a".to_owned(), edit).await.unwrap();
}

#[tokio::test]
async fn change_is_compared_once_per_tenant() {
    let home = TempDir::new().unwrap();
    let editor = editor_after(&home, 5).await;
    let compared = Arc::new(AtomicUsize::new(0));
    let list = async |tenant: i32, limit: usize| {
        let restrictions = Restrictions {
            max_priority: Some(tenant),
            ..Restrictions::default()
        };
        let count = Arc::clone(&compared);
        let describe = move |_: &Document, new: &Document| {
            count.fetch_add(1, Ordering::Relaxed);
            let capacity = new.templates()[0].capacity().get();
            (capacity != 3.0).then(|| format!("{capacity} for {tenant}"))
        };
        let listed = editor.described_history(limit, restrictions, describe);
        let listed = listed.await.unwrap().into_iter().map(|it| it.change);
        let listed = listed.collect::<Vec<_>>().join(", ");
        (listed, compared.swap(0, Ordering::Relaxed))
    };
    let newest = |tenant: i32| format!("6 for {tenant}, 5 for {tenant}");
    assert_eq!(list(1, 2).await, (newest(1), 2));
    let all = |tenant: i32| format!("{}, 4 for {tenant}, 2 for {tenant}", newest(tenant));
    assert_eq!(list(1, 10).await, (all(1), 3));
    assert_eq!(list(2, 10).await, (all(2), 5));
    for tenant in [1, 2] {
        assert_eq!(list(tenant, 10).await, (all(tenant), 0));
    }
    set_capacity(&editor, 7).await;
    assert_eq!(list(1, 10).await, (format!("7 for 1, {}", all(1)), 1));
}

#[tokio::test]
async fn failed_comparison_keeps_earlier_ones() {
    let home = TempDir::new().unwrap();
    let editor = editor_after(&home, 3).await;
    let compared = Arc::new(AtomicUsize::new(0));
    let list = async |fails: bool| {
        let count = Arc::clone(&compared);
        let describe = move |_: &Document, _: &Document| {
            assert!(!fails, "a failure of the test");
            count.fetch_add(1, Ordering::Relaxed);
            None
        };
        let listed = editor.described_history(10, Restrictions::default(), describe);
        (listed.await.is_ok(), compared.swap(0, Ordering::Relaxed))
    };
    assert_eq!(list(false).await, (true, 3));
    set_capacity(&editor, 7).await;
    assert_eq!(list(true).await, (false, 0));
    assert_eq!(list(false).await, (true, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn comparisons_of_tenants_leave_room_for_other_reads() {
    let home = TempDir::new().unwrap();
    let editor = editor_after(&home, 1).await;
    let (end, ended) = mpsc::channel::<()>();
    let (begin, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let ended = Arc::new(Mutex::new(ended));
    let tenants: Vec<_> = (0..MAX_RUNNING)
        .map(|_| {
            let (editor, ended) = (Arc::clone(&editor), Arc::clone(&ended));
            let begin = begin.clone();
            tokio::spawn(async move {
                let describe = move |_: &Document, _: &Document| {
                    begin.send(()).unwrap();
                    ended.lock().unwrap().recv().unwrap_err();
                    None
                };
                let listed = editor.described_history(1, Restrictions::default(), describe);
                listed.await.is_ok()
            })
        })
        .collect();
    begun.recv().await.unwrap();
    let read = editor.history(None, 10).await.map(|it| it.len());
    drop(end);
    assert!(read.is_ok(), "{read:?}");
    for tenant in tenants {
        assert!(tenant.await.unwrap());
    }
}

fn warnings_of_edit(
    before: &Document,
    after: &Document,
    restrictions: &Restrictions,
) -> Vec<String> {
    warnings::of_edit(&[], &EditNotes::default(), [before, after], restrictions)
}

/// A document with `a*`, templates that it hides, and one for all others.
fn hiding(hidden: &[String]) -> Document {
    let hidden = hidden.iter().map(|glob| format!("'{glob}'"));
    let globs = ["'a*'".to_owned()].into_iter().chain(hidden);
    let globs = globs.chain(["'*'".to_owned()]);
    let templates = globs.map(|glob| {
        format!("{{identifier_glob: {glob}, capacity: 1, algorithm: {{kind: STATIC}}}}")
    });
    let templates = templates.collect::<Vec<_>>().join(", ");
    Document::parse(&format!("resources: [{templates}]")).unwrap()
}

#[test]
fn warning_that_differs_in_a_number_of_its_glob_is_new() {
    let names = |count: usize| (0..count).map(|it| format!("a[{it}]")).collect::<Vec<_>>();
    let everybody = Restrictions::default();
    let warnings = warnings_of_edit(&hiding(&names(1)), &hiding(&names(2)), &everybody);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("\"a[1]\""), "{warnings:?}");
    assert!(
        warnings[1].contains("1 more warning, as before"),
        "{warnings:?}"
    );
    let many = warnings_of_edit(&hiding(&names(1)), &hiding(&names(150)), &everybody);
    assert_eq!(many.len(), 100);
    assert!(many[99].contains("1 more warning, as before"), "{many:?}");
}

#[test]
fn restricted_caller_gets_no_advice_to_read_the_document() {
    let unlimited = |capacity: u32| {
        let text = format!(
            "resources: [{{identifier_glob: a, capacity: {capacity}, algorithm: {{kind: STATIC}}}}]"
        );
        Document::parse(&text).unwrap()
    };
    let restrictions = Restrictions {
        max_priority: Some(1),
        ..Restrictions::default()
    };
    let warnings = warnings_of_edit(&unlimited(1), &unlimited(2), &restrictions);
    assert_eq!(warnings, ["the document has 1 more warning, as before"]);
}
