use std::{fs, path::Path};

use doorman_config::LastGoodFile;
use doorman_openapi::{Epoch, Moment, NodeId, ServerId};
use tempfile::TempDir;

use super::*;
use crate::{
    durability::Horizon,
    http::state::About,
    ledger::{Ledger, Predecessor, Settings, UnmatchedPolicy},
    util::clock,
};

fn text(capacity: u32) -> String {
    format!(
        "resources: [{{identifier_glob: '*', capacity: {capacity}, algorithm: {{kind: FAIR_SHARE}}}}]"
    )
}

/// A server that follows a file, while `test` changes it.
async fn following(test: impl AsyncFnOnce(&Path, &App)) {
    let home = TempDir::new().unwrap();
    let file = home.path().join("limits.yaml");
    fs::write(&file, text(1)).unwrap();
    let source = FileSource::new(&file);
    let document = Arc::new(source.load().unwrap());
    let settings = Settings {
        max_leases: 10,
        unmatched: UnmatchedPolicy::Grant,
        predecessor: Predecessor::None,
    };
    let about = About {
        server_id: ServerId::new("s").unwrap(),
        node: NodeId::new("n").unwrap(),
        epoch: Epoch::new(1).unwrap(),
        advertise: String::new(),
        config_source: format!("file:{source}"),
        taken_for_the_first: false,
    };
    let core = Ledger::new(Arc::clone(&document), settings, clock::now());
    let horizon = Arc::new(Horizon::new(Moment::NEVER, 0));
    let app = Arc::new(App::new(core, horizon, InForce::new(document), about));
    tokio::select! {
        () = follow(Arc::clone(&app), Followed::new(source, home.path())) => panic!("it stopped following"),
        () = test(&file, &app) => {}
    }
}

fn capacity(app: &App) -> f64 {
    app.in_force().document().templates()[0].capacity().get()
}

async fn until(app: &App, is: impl Fn(&App) -> bool) {
    for _ in 0..6_000 {
        if is(app) {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("not within a minute");
}

#[tokio::test(start_paused = true)]
async fn a_change_comes_into_force() {
    following(async |file, app| {
        fs::write(file, text(2)).unwrap();
        until(app, |app| capacity(app) == 2.0).await;
        let replacement = file.with_extension("new");
        fs::write(&replacement, text(3)).unwrap();
        fs::rename(&replacement, file).unwrap();
        until(app, |app| capacity(app) == 3.0).await;
        assert_eq!(app.in_force().reloads().refused, 0);
        assert_eq!(app.in_force().reloads().applied, 2);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_bad_change_is_told_and_the_good_document_stays() {
    following(async |file, app| {
        fs::write(file, "resources: [{identifier_glob: '*', capacity: -1}]").unwrap();
        until(app, |app| app.in_force().error().is_some()).await;
        let error = app.in_force().error().unwrap_or_default().to_owned();
        assert!(
            error.contains("limits.yaml:1") && error.contains("capacity"),
            "{error}"
        );
        assert_eq!(capacity(app), 1.0);

        fs::remove_file(file).unwrap();
        until(app, |app| app.in_force().reloads().refused == 2).await;
        assert!(
            app.in_force()
                .error()
                .is_some_and(|error| error.contains("cannot be read"))
        );

        // What was in force comes back: nothing changes, and nothing is wrong any more.
        fs::write(file, text(1) + "\n").unwrap();
        until(app, |app| app.in_force().error().is_none()).await;
        assert_eq!(app.in_force().reloads().applied, 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_a_file_says_is_kept_for_a_start_that_finds_it_with_a_fault() {
    following(async |file, app| {
        let source = FileSource::new(file);
        let last_good = LastGoodFile::in_dir(file.parent().unwrap());
        let kept = |is: f64| {
            let kept = last_good.load(&source);
            kept.is_some_and(|it| it.templates()[0].capacity().get() == is)
        };
        until(app, |_| kept(1.0)).await;
        fs::write(file, text(2)).unwrap();
        until(app, |_| kept(2.0)).await;
        fs::write(file, "resources: 5").unwrap();
        until(app, |app| app.in_force().error().is_some()).await;
        assert!(kept(2.0));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_kept_at_first_is_kept_later() {
    following(async |file, app| {
        let source = FileSource::new(file);
        let home = file.parent().unwrap();
        let last_good = LastGoodFile::in_dir(home);
        let kept = |is: f64| {
            let kept = last_good.load(&source);
            kept.is_some_and(|it| it.templates()[0].capacity().get() == is)
        };
        until(app, |_| kept(1.0)).await;
        // In the place of what would be written.
        let obstacle = home.join("file.last-good.json.new");
        fs::create_dir(&obstacle).unwrap();
        fs::write(file, text(2)).unwrap();
        until(app, |app| capacity(app) == 2.0).await;
        sleep(3 * LOOK).await;
        assert!(kept(1.0));
        fs::remove_dir(&obstacle).unwrap();
        until(app, |_| kept(2.0)).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_the_start_has_found_wrong_is_told_once_however_long_it_is() {
    let names: String = (0..200).map(|n| format!("- {{wrong{n}: 1}}\n")).collect();
    let wrong = format!("resources:\n{names}");
    following(async |file, app| {
        fs::write(file, &wrong).unwrap();
        let reason = FileSource::new(file).load().unwrap_err().full_message();
        assert!(reason.len() > 5_000, "{}", reason.len());
        app.in_force().refuse(&reason);
        sleep(3 * LOOK).await;
        assert_eq!(app.in_force().reloads().refused, 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_document_that_is_being_written_is_not_taken_half_way() {
    following(async |file, app| {
        // Each part of it would be valid by itself.
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
        until(app, |app| capacity(app) == 9.0).await;
        assert_eq!(app.in_force().document().templates().len(), 8);
        let reloads = app.in_force().reloads();
        assert_eq!((reloads.applied, reloads.refused), (1, 0));
    })
    .await;
}

#[tokio::test]
async fn a_reason_without_end_is_cut_short() {
    let mut in_force = InForce::new(Arc::new(Document::built_in()));
    in_force.refuse(&"ü".repeat(5000));
    assert!(in_force.error().is_some_and(|error| error.len() < 4100));
}
