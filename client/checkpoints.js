/** Why a checkpoint is there and stays there. Pure. */

/**
 * @param {any} run RunDetail
 * @param {any} checkpoint one of its checkpoints
 * @returns {("proposed" | "target" | "parent" | "by_hand")[]}
 */
export function standing(run, checkpoint) {
  const { checkpoint_id: id, segment, step } = checkpoint;
  const saved = (run.commands ?? []).some(
    (/** @type {any} */ c) => c.kind === "save" && c.state === "succeeded" && c.segment === segment && c.step === step,
  );
  return /** @type {const} */ (["proposed", "target", "parent", "by_hand"]).filter(
    (what) =>
      ({
        proposed: run.ended_at === null && run.proposal?.target === id, // nothing goes back in a run that is over
        target: run.command?.rollback?.checkpoint_id === id,
        parent: (run.segments ?? []).at(-1)?.checkpoint_id === id,
        by_hand: saved,
      })[what],
  );
}
