//! The document changes under load, in every way a file can change: nobody loses a lease.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use doorman_examples::load::{Load, Totals};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::sleep;

use crate::{
    fleet::target,
    support::{ControlPlane, Service, curl, exclusive_load},
};

/// Only what is broken takes longer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// What each of the two services is offered.
const OFFERED: f64 = 60.0;

fn document(capacity: f64, kind: &str, lease_length: u32) -> String {
    format!(
        "resources:\n  - identifier_glob: api\n    capacity: {capacity}\n    \
         algorithm: {{kind: {kind}, lease_length: {lease_length}, refresh_interval: 1}}\n"
    )
}

/// Two services under load, and the file that they are limited by.
struct Fleet {
    server: ControlPlane,
    services: [Service; 2],
    load: Load<2>,
    file: PathBuf,
}

impl Fleet {
    async fn start() -> Self {
        let home = TempDir::new().expect("a folder for temporary files");
        let file = home.path().join("limits.yaml");
        let server = ControlPlane::start_in(home, &document(300.0, "FAIR_SHARE", 20));
        let services = [(); 2].map(|()| Service::start(server.address(), &[]));
        let load = Load::start(services.each_ref().map(target), 8);
        load.offer([OFFERED; 2]);
        let fleet = Self {
            server,
            services,
            load,
            file,
        };
        fleet
            .until("they have settled", |it| it.clients() == 2.0)
            .await;
        // The first requests came before the first leases.
        sleep(Duration::from_secs(2)).await;
        fleet
    }

    fn view(&self) -> Value {
        self.server.get("/v1/resources/api")
    }

    fn clients(&self) -> f64 {
        self.server.get("/v1/resources")["resources"][0]["clients"]
            .as_f64()
            .unwrap_or(0.0)
    }

    /// What the layer of each service holds.
    fn leases(&self) -> [f64; 2] {
        self.services
            .each_ref()
            .map(|service| service.lease("api").expect("it never loses its lease"))
    }

    async fn until(&self, what: &str, is: impl Fn(&Self) -> bool) {
        let begun = self.load.history().now();
        while !is(self) {
            assert!(
                self.load.history().now() < begun + TIMEOUT,
                "never: {what}; {}",
                self.server.get("/v1/status")
            );
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// What both services answer in the next stretch.
    async fn answers(&self, stretch: Duration) -> Totals {
        let before: Totals = self.load.totals().into_iter().sum();
        sleep(stretch).await;
        self.load.totals().into_iter().sum::<Totals>().since(before)
    }

    /// Both take all they are offered, for a while.
    async fn assert_nothing_is_refused(&self) {
        let answers = self.answers(Duration::from_millis(1500)).await;
        assert_eq!(
            (answers.rejected, answers.unavailable, answers.failed),
            (0, 0, 0),
            "{answers:?}"
        );
    }
}

/// Another file takes the name.
fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).expect("the folder is there");
    fs::rename(&new, file).expect("both are in one folder");
}

/// What Kubernetes does with a ConfigMap: the name leads to a directory whose name is turned to the next version.
fn turn_link(file: &Path, version: &str, text: &str) {
    let home = file.parent().expect("it is in a folder");
    let (data, new) = (home.join("..data"), home.join("..data_tmp"));
    fs::create_dir(home.join(version)).expect("the version is new");
    fs::write(home.join(version).join("limits.yaml"), text).expect("the folder is new");
    symlink(version, &new).expect("the name is free");
    fs::rename(&new, &data).expect("both are in one folder");
    if !file.is_symlink() {
        symlink("..data/limits.yaml", &new).expect("the name is free");
        fs::rename(&new, file).expect("both are in one folder");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_loses_a_lease_however_the_document_changes() {
    let _exclusive = exclusive_load().await;
    let fleet = Fleet::start().await;
    let file = &fleet.file;
    let first: Totals = fleet.load.totals().into_iter().sum();
    fleet.assert_nothing_is_refused().await;

    // A cut, by an edit in place: what is left is shared.
    fs::write(file, document(90.0, "FAIR_SHARE", 20)).expect("it can be edited");
    fleet
        .until("they share what is left", |it| it.leases() == [45.0; 2])
        .await;
    // What was saved up goes first: a second's worth, of which a third of each second's load is taken.
    sleep(Duration::from_secs(4)).await;
    let answers = fleet.answers(Duration::from_secs(2)).await;
    assert!((160..=190).contains(&answers.admitted), "{answers:?}");

    // A shorter lease and the capacity of before, by another file.
    replace(file, &document(300.0, "FAIR_SHARE", 5));
    fleet
        .until("they have enough again", |it| {
            it.leases().iter().all(|lease| *lease >= OFFERED)
        })
        .await;
    fleet
        .until("their leases are shorter", |it| {
            it.services.iter().all(|service| {
                service.snapshot()["limits"][0]["lease"]["expires_in"]
                    .as_f64()
                    .is_some_and(|left| left < 5.0)
            })
        })
        .await;
    fleet.assert_nothing_is_refused().await;

    // Another algorithm, by a link.
    turn_link(file, "..1", &document(300.0, "STATIC", 5));
    fleet
        .until("it is static", |it| it.view()["algorithm"] == "STATIC")
        .await;
    turn_link(file, "..2", &document(300.0, "PROPORTIONAL_SHARE", 5));
    fleet
        .until("it is proportional", |it| {
            it.view()["algorithm"] == "PROPORTIONAL_SHARE"
        })
        .await;
    fleet.assert_nothing_is_refused().await;

    // The template disappears.
    turn_link(file, "..3", "resources: []");
    fleet
        .until("no template matches", |it| it.view()["template"].is_null())
        .await;
    fleet.assert_nothing_is_refused().await;

    // A bad document changes nothing, and says what is wrong with it.
    let version = fleet.server.get("/v1/status")["config_version"].clone();
    turn_link(
        file,
        "..4",
        "resources: [{identifier_glob: api, capacity: -1}]",
    );
    fleet
        .until("it is refused", |it| {
            it.server.get("/v1/status")["config_error"]
                .as_str()
                .is_some_and(|error| error.contains("limits.yaml:1") && error.contains("capacity"))
        })
        .await;
    assert_eq!(fleet.server.get("/v1/status")["config_version"], version);
    let metrics = curl(&[&format!("{}/metrics", fleet.server.address())]).body;
    for line in [
        "doorman_config_last_reload_successful 0",
        r#"doorman_config_reloads_total{outcome="refused"} 1"#,
    ] {
        assert!(metrics.lines().any(|it| it == line), "{line} in {metrics}");
    }
    fleet.assert_nothing_is_refused().await;
    turn_link(file, "..5", &document(300.0, "FAIR_SHARE", 20));
    fleet
        .until("it is good again", |it| {
            it.view()["algorithm"] == "FAIR_SHARE"
        })
        .await;
    assert!(fleet.server.get("/v1/status").get("config_error").is_none());
    fleet.assert_nothing_is_refused().await;

    let all = fleet.load.totals().into_iter().sum::<Totals>().since(first);
    assert_eq!((all.unavailable, all.failed), (0, 0), "{all:?}");
    assert_eq!(fleet.clients(), 2.0);
}
