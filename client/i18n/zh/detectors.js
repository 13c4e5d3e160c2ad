/**
 * Conditions: the name of each kind, its settings, and the sentence that says it. Of alternatives parted by | the first is taken
 * whose places are all set. A kind or setting without words here is shown in those of the server.
 */
export default {
  "detector.threshold": "阈值",
  "detector.nonfinite": "非有限值",
  "detector.consecutive_rise": "连续上升",
  "detector.spike": "尖峰",
  "detector.skip_streak": "连续跳步",
  "condition.any": "符合“{detector}”",
  "condition.threshold": "高于 {above} 或低于 {below}|高于 {above}|低于 {below}",
  "condition.nonfinite": "为 NaN 或无穷",
  "condition.consecutive_rise": "连续上升 {rises} 次",
  "condition.spike": "超过近期中位数的 {times} 倍，且高出 {spreads} 个离差",
  "condition.skip_streak": "连续跳过 {streak} 步",
  "setting.threshold.above": "高于",
  "setting.threshold.below": "低于",
  "setting.consecutive_rise.rises": "连续上升次数",
  "setting.spike.times": "中位数的倍数",
  "setting.spike.spreads": "高出的离差数",
  "setting.spike.history": "判断前所需点数",
  "setting.skip_streak.streak": "连续跳过的步数",
  "setting.skip_streak.startup_steps": "启动阶段步数",
  "setting.skip_streak.startup_streak": "启动阶段连续数",
};
