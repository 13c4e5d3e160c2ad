/** What the tests of the page's pure modules share: a run, an alert, an incident and an event as the server answers them. */

/** A run under way that can be stopped and rolled back, with nothing wrong. */
export const run = (more) => ({
  run_id: "r1",
  state: "running",
  alerts: [],
  commands: [],
  checkpoints: [],
  segments: [],
  capabilities: ["stop", "rollback"],
  incapable_because: "",
  command: null,
  countdown: null,
  proposal: { target: "c3", passed_over: [], first_sign_step: null },
  ...more,
});

/** A loss that is NaN, firing. */
export const alert = (more) => ({
  alert_id: "a",
  run_id: "r1",
  run_name: "one",
  rule_id: "loss-not-finite",
  rule_name: "Loss is not finite",
  title: "Loss is NaN",
  severity: "critical",
  series: "train/loss",
  state: "firing",
  segment: 1,
  onset_step: 5000,
  firing_step: 5024,
  resolved_step: null,
  closed_because: null,
  limit: null,
  trial: false,
  again_after: null,
  ...more,
});

/** An incident of that alert, which nobody has taken on. */
export const incident = (more) => ({
  incident_id: "i1",
  run_id: "r1",
  run_name: "one",
  number: 1,
  state: "triggered",
  severity: "critical",
  title: "Loss is NaN",
  first_step: 5000,
  segment: 1,
  opened_at: "2026-04-02T19:00:00Z",
  acknowledged_by: null,
  resolved_at: null,
  closed_because: null,
  silenced_until: null,
  alerts: [alert({})],
  ...more,
});

let eventId = 0;
/** Something that happened, each a minute after the one before. */
export const event = (type, data = {}, more = {}) => {
  eventId += 1;
  return {
    event_id: eventId,
    type,
    at: new Date(Date.UTC(2026, 3, 2, 12, eventId)).toISOString(),
    step: null,
    segment: 1,
    data,
    ...more,
  };
};

/** A silence of one run that holds on 2 April 2026 at noon. */
export const silence = (more) => ({
  silence_id: "s1",
  run_id: "r1",
  run_name: "one",
  project: null,
  rule_id: null,
  rule_name: null,
  reason: "maintenance",
  author: "mlops",
  starts_at: "2026-04-02T10:00:00Z",
  ends_at: "2026-04-02T14:00:00Z",
  ended_at: null,
  ended_by: null,
  ...more,
});
