// The connection to the server: rows as they change, and the object that is looked at. It comes back by itself.

const FIRST_PAUSE = 300;
const LONGEST_PAUSE = 5000;

export class Live {
  constructor(handlers) {
    this.handlers = handlers; // by the type of a message, and `lost`
    this.looking = "";
    this.pause = FIRST_PAUSE;
    this.open();
  }

  open() {
    const address = new URL("live", location.href);
    address.protocol = "ws:";
    address.hash = "";
    this.socket = new WebSocket(address);
    let fresh = true;
    this.socket.onopen = () => {
      this.pause = FIRST_PAUSE;
      if (this.looking) this.say();
    };
    this.socket.onmessage = (event) => {
      const said = JSON.parse(event.data);
      if (fresh && said.type === "rows") {
        fresh = false;
        this.handlers.anew(); // rows of an earlier connection may be gone by now
      }
      this.handlers[said.type]?.(said);
    };
    this.socket.onclose = () => {
      this.handlers.lost();
      setTimeout(() => this.open(), this.pause);
      this.pause = Math.min(this.pause * 1.6, LONGEST_PAUSE);
    };
  }

  look(key, more = {}) {
    const asked = JSON.stringify({ ...more, look: key });
    if (asked === this.looking) return;
    this.looking = asked;
    this.say();
  }

  say() {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(this.looking);
  }
}
