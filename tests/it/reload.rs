//! Document changes under load: no holder loses its lease, however the file changes.

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

use crate::support::{ControlPlane, Service, TIMEOUT, curl, exclusive_load};

/// The load of each of the two services.
const OFFERED: f64 = 60.0;

fn document(capacity: f64, kind: &str, lease_length: u32) -> String {
    format!(
        "resources:\n  - identifier_glob: api\n    capacity: {capacity}\n    \
         algorithm: {{kind: {kind}, lease_length: {lease_length}, refresh_interval: 1}}\n"
    )
}

/// Two services under load, limited by the document in a file.
struct Fleet {
    server: ControlPlane,
    services: [Service; 2],
    load: Load<2>,
    file: PathBuf,
}

impl Fleet {
    async fn start() -> Self {
        let home = TempDir::new().expect("a temporary directory");
        let file = home.path().join("limits.yaml");
        let server = ControlPlane::start_in(home, &document(300.0, "FAIR_SHARE", 20));
        let services = [(); 2].map(|()| Service::start(server.address(), &[]));
        let load = Load::start(services.each_ref().map(Service::target), 8);
        load.offer([OFFERED; 2]);
        let fleet = Self {
            server,
            services,
            load,
            file,
        };
        fleet.until("both lease", |it| it.clients() == 2.0).await;
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

    /// Leased capacity of each service.
    fn leases(&self) -> [f64; 2] {
        self.services
            .each_ref()
            .map(|service| service.lease("api").expect("it never loses its lease"))
    }

    fn config_error(&self) -> Option<String> {
        let status = self.server.get("/v1/status");
        status["config_error"].as_str().map(str::to_owned)
    }

    async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let begin = self.load.history().now();
        while !condition(self) {
            assert!(
                self.load.history().now() < begin + TIMEOUT,
                "never: {what}; {}",
                self.server.get("/v1/status")
            );
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Totals of both services in the next window.
    async fn observe(&self, window: Duration) -> Totals {
        let before: Totals = self.load.totals().into_iter().sum();
        sleep(window).await;
        self.load.totals().into_iter().sum::<Totals>().since(before)
    }

    async fn assert_all_admitted(&self) {
        let totals = self.observe(Duration::from_millis(1500)).await;
        assert_eq!(
            (totals.rejected, totals.unavailable, totals.failed),
            (0, 0, 0),
            "{totals:?}"
        );
    }
}

/// Replaces the file by renaming.
fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    fs::write(&new, text).expect("the directory exists");
    fs::rename(&new, file).expect("one directory");
}

/// Updates the file as Kubernetes updates a ConfigMap: it is a link into a directory that is itself
/// a link, which is pointed at the next version.
fn relink(file: &Path, version: &str, text: &str) {
    let home = file.parent().expect("a directory");
    let (data, new) = (home.join("..data"), home.join("..data_tmp"));
    fs::create_dir(home.join(version)).expect("the version is new");
    fs::write(home.join(version).join("limits.yaml"), text).expect("the directory is new");
    symlink(version, &new).expect("the name is free");
    fs::rename(&new, &data).expect("one directory");
    if !file.is_symlink() {
        symlink("..data/limits.yaml", &new).expect("the name is free");
        fs::rename(&new, file).expect("one directory");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
async fn leases_survive_every_document_change() {
    let _exclusive = exclusive_load().await;
    let fleet = Fleet::start().await;
    let file = &fleet.file;
    let first: Totals = fleet.load.totals().into_iter().sum();
    fleet.assert_all_admitted().await;

    // Less capacity, by an edit in place.
    fs::write(file, document(90.0, "FAIR_SHARE", 20)).expect("the file exists");
    fleet
        .until("they share the rest", |it| it.leases() == [45.0; 2])
        .await;
    // Buckets hold one second's worth, of which a third is spent each second.
    sleep(Duration::from_secs(4)).await;
    let totals = fleet.observe(Duration::from_secs(2)).await;
    assert!((160..=190).contains(&totals.admitted), "{totals:?}");

    // Shorter leases and the capacity of before, by another file.
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
                    .is_some_and(|expires_in| expires_in < 5.0)
            })
        })
        .await;
    fleet.assert_all_admitted().await;

    // Other algorithms, by a link.
    for (version, algorithm) in [("..1", "STATIC"), ("..2", "PROPORTIONAL_SHARE")] {
        relink(file, version, &document(300.0, algorithm, 5));
        fleet
            .until(algorithm, |it| it.view()["algorithm"] == algorithm)
            .await;
    }
    fleet.assert_all_admitted().await;

    // No template.
    relink(file, "..3", "resources: []");
    fleet
        .until("no template matches", |it| it.view()["template"].is_null())
        .await;
    fleet.assert_all_admitted().await;

    // An invalid document is reported, and changes nothing.
    let version = fleet.server.get("/v1/status")["config_version"].clone();
    relink(
        file,
        "..4",
        "resources: [{identifier_glob: api, capacity: -1}]",
    );
    fleet
        .until("the error is reported", |it| {
            it.config_error()
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
    fleet.assert_all_admitted().await;
    relink(file, "..5", &document(300.0, "FAIR_SHARE", 20));
    fleet
        .until("the valid document is active", |it| {
            it.view()["algorithm"] == "FAIR_SHARE"
        })
        .await;
    assert_eq!(fleet.config_error(), None);
    fleet.assert_all_admitted().await;

    let all = fleet.load.totals().into_iter().sum::<Totals>().since(first);
    assert_eq!((all.unavailable, all.failed), (0, 0), "{all:?}");
    assert_eq!(fleet.clients(), 2.0);
}
