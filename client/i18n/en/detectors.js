/**
 * Conditions: the name of each kind, its settings, and the sentence that says it. Of alternatives parted by | the first is taken
 * whose places are all set. A kind or setting without words here is shown in those of the server.
 */
export default {
  "detector.threshold": "Threshold",
  "detector.nonfinite": "Not finite",
  "detector.consecutive_rise": "Consecutive rise",
  "detector.spike": "Spike",
  "detector.skip_streak": "Skipped steps in a row",
  "condition.any": "meets \u201c{detector}\u201d",
  "condition.threshold": "is over {above} or under {below}|is over {above}|is under {below}",
  "condition.nonfinite": "is NaN or infinite",
  "condition.consecutive_rise": "rises {rises} times in a row",
  "condition.spike": "is over {times} times the median of its recent past and {spreads} spreads above it",
  "condition.skip_streak": "says that {streak} steps were skipped in a row",
  "setting.threshold.above": "Over",
  "setting.threshold.below": "Under",
  "setting.consecutive_rise.rises": "Rises in a row",
  "setting.spike.times": "Times the median",
  "setting.spike.spreads": "Spreads above it",
  "setting.spike.history": "Points before it judges",
  "setting.skip_streak.streak": "Skipped steps in a row",
  "setting.skip_streak.startup_steps": "Start-up steps",
  "setting.skip_streak.startup_streak": "In a row at start-up",
};
