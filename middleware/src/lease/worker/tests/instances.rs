//! Processes that give the same name of an instance.

use doorman_core::ledger::Tuning;
use doorman_openapi::Capacity;

use super::{real_ledger::Server, *};
use crate::LimitLayer;

fn document(interval: u32) -> String {
    format!(
        "resources: [{{identifier_glob: '*', capacity: 100, algorithm: \
         {{kind: FAIR_SHARE, lease_length: 60, refresh_interval: {interval}}}}}]"
    )
}

struct Process {
    _layer: LimitLayer,
    worker: JoinHandle<()>,
}

impl Process {
    fn start(server: &Server) -> Self {
        let (doorman, worker) = run(builder().instance("pod-7"), &server.plane);
        let limit = Limit::rate("db").wants(Capacity::saturating(80.0));
        let _layer = doorman.layer(limit).unwrap();
        Self { _layer, worker }
    }
}

/// A load balancer that fails ends connections of one side only. A living process notices that when
/// its next request gets no answer, and sends it again.
#[tokio::test(start_paused = true)]
async fn lost_connections_of_a_living_process_end_no_lease() {
    for interval in [1, 2, 5] {
        for phase in 0..10 {
            let server = Server::start(document(interval), &Tuning::DEFAULT);
            let first = Process::start(&server);
            sleep(SECOND).await;
            let client = server.plane.last_request().client_id;
            let _second = Process::start(&server);
            sleep(4 * interval * SECOND + interval * SECOND * phase / 10).await;
            server.lose_connections_of(&client);
            sleep(4 * interval * SECOND).await;
            assert_eq!(server.replaced(), 0, "refresh {interval}, {phase}");
            first.worker.abort();
            sleep((4 * interval + 3) * SECOND).await;
            assert_eq!(server.replaced(), 1, "refresh {interval}, {phase}");
        }
    }
}
