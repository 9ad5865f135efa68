use std::{fs, path::Path, sync::Arc, time::Duration};

use doorman_config::{Document, FileSource, LastGoodFile};
use doorman_openapi::{Epoch, Moment};
use tempfile::TempDir;
use tokio::time::{advance, sleep};

use super::{file::LastValidWriter, *};
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
